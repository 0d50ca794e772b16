package project

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/server/args"
	"pmcp/server/socket"
)

// requireHere returns an error if another window owns the process: this session
// cannot change that process.
func (p *Project) requireHere(ctx context.Context, name string) error {
	run, err := p.Find(ctx, name)
	if err == nil && run.Owner != nil {
		err = &WindowError{run: run}
	}
	return err
}

// callMethod is the method of OwnerCall.
const callMethod = "call"

// ownerCallLimit bounds a call to another window. No tool waits longer.
const ownerCallLimit = 11 * time.Minute

// An OwnerCall is a call of a tool about one process that another window runs, as it is
// sent to that window, or of one that the daemon is to run.
type OwnerCall struct {
	Tool string `json:"tool"`
	// Project and Process are the path and the name that identify the process, without
	// a label.
	Project string `json:"project"`
	Process string `json:"process"`
	// Run is the id of the run that the caller has seen. Another run is not changed.
	Run int64 `json:"run"`
	// Arguments are those of the tool.
	Arguments args.Given `json:"arguments"`
	// Allowed is the list of allowed executables of the caller; nil allows any.
	Allowed []string `json:"allowed,omitempty"`
	// By is the Actor that asks. An older version sends none.
	By string `json:"by,omitempty"`
	// Starts means that the call starts a process which runs nowhere.
	Starts bool `json:"-"`

	ofGroup bool // see groupMethod
}

// An OwnerAnswer is the answer to an OwnerCall.
type OwnerAnswer struct {
	// Text is the text of the answer, and Structured its JSON unless IsError is set.
	Text       string          `json:"text,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
	IsError    bool            `json:"is_error,omitempty"`
	// Relayed is the result of the tool of another MCP server. The other fields are then
	// empty.
	Relayed json.RawMessage `json:"relayed,omitempty"`
}

// named returns the answer of the owner of run with that owner named: as the key owner, and at the end
// of the first line of the text or, if that is not a line about the process, on a line of its own.
func (a OwnerAnswer) named(run *Run) OwnerAnswer {
	if run.IsKept() { // the daemon's: the answer says how long
		return a
	}
	first, rest, more := strings.Cut(a.Text, "\n")
	owned := fmt.Sprintf("owned by the pmcp server %d %s", run.Owner.PID, run.Owner.Client)
	switch {
	case strings.HasPrefix(first, "["): // the notice about output that follows
		first = owned + "\n" + first
	case a.IsError:
		first += "\n" + owned
	default:
		first += ", " + owned
	}
	if a.Text = first; more {
		a.Text += "\n" + rest
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(a.Structured, &object) == nil && object != nil && object["owner"] == nil {
		if owner, err := json.Marshal(run.Owner); err == nil {
			object["owner"] = owner
		}
		if name, err := json.Marshal(run.Spec.Name); err == nil && object["name"] != nil {
			object["name"] = name
		}
		if whole, err := json.Marshal(object); err == nil {
			a.Structured = whole
		}
	}
	return a
}

// AwaitStored waits until other windows can read what calls have done here, for at most
// storedWithin. If they cannot yet, the answer has the reason.
func (p *Project) AwaitStored(ctx context.Context) (a StoredAnswer) {
	ctx, cancel := context.WithTimeout(ctx, storedWithin)
	defer cancel()
	if err := p.o.Store.table.AwaitStored(ctx); err != nil {
		p.o.Log.Debug("what was done is stored later", "error", err)
		a.Later = err.Error()
	}
	return a
}

// StoredMethod is the method by which a window waits until another one has stored what it has
// done. It has no parameters; its result is a StoredAnswer.
const StoredMethod = "stored"

// A StoredAnswer is the result of StoredMethod.
type StoredAnswer struct {
	Later string `json:"later,omitempty"` // why it is not stored yet; "" = it is
}

// How long a read waits for a sign of life of another window, for how long one that gave
// none is not asked again, and how long a window that lives has to store what it has done: one
// commit, unless its storage hangs.
const (
	lifeWithin   = 2 * time.Second
	silentFor    = 10 * time.Second
	storedWithin = 10 * time.Second
)

// maxAsked bounds how many windows are asked at the same time. More are not asked.
const maxAsked = 64

// AskToStore has the other live windows to which runs belong store what they have done: a window
// acts, and its processes print, before it stores that. later has their reasons why they cannot.
// asked is false if there is no such window.
//
// A window that has no socket, is of an older version or hangs stays as it was.
func (s *Store) AskToStore(ctx context.Context, runs []logstore.Run) (later []string, asked bool) {
	windows := make(map[string]bool)
	for i := range runs {
		if r := &runs[i]; s.dir != "" && r.Live && !r.Own && len(windows) < maxAsked {
			windows[r.Session] = true
		}
	}
	answers := make(chan string, len(windows))
	for window := range windows {
		go func() { answers <- s.askWindow(ctx, window) }()
	}
	for range windows {
		if why := <-answers; why != "" {
			later = append(later, why)
		}
	}
	slices.Sort(later)
	return slices.Compact(later), len(windows) > 0
}

// freshRuns is Runs after the other windows to which the runs belong have stored what they have
// done. A call of a client reads with it, or calls freshen before it reads; what is done without
// a call sees what is stored.
func (s *Store) freshRuns(ctx context.Context, f logstore.RunFilter) ([]logstore.Run, error) {
	runs, err := s.Runs(ctx, f)
	if err != nil {
		return nil, err
	}
	if _, asked := s.AskToStore(ctx, runs); asked {
		return s.Runs(ctx, f)
	}
	return runs, nil
}

// freshen has the other windows store what they have done with those processes of p, or with all
// if names is nil, so that the reads that follow show it.
func (p *Project) freshen(ctx context.Context, names []string) {
	elsewhere := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		st, err := p.o.Manager.Status(name)
		return err == nil && st.GoesOn()
	})
	if names != nil && len(elsewhere) == 0 {
		return
	}
	runs, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: p.name, Names: elsewhere, Current: true})
	if err == nil { // else the read that follows reports it
		p.o.Store.AskToStore(ctx, runs)
	}
}

// askWindow asks a window, by its session, to store what it has done. It returns why the window
// cannot, if it says so.
func (s *Store) askWindow(ctx context.Context, window string) (later string) {
	if s.isSilent(window) {
		return ""
	}
	asking, cancel := context.WithTimeout(ctx, storedWithin)
	defer cancel()
	var answer StoredAnswer
	err := socket.CallLive(asking, s.dir, window, StoredMethod, struct{}{}, &answer, s.within)
	if errors.Is(err, socket.ErrUnknownOutcome) && ctx.Err() == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.DeleteFunc(s.silent, func(_ string, since time.Time) bool { return time.Since(since) >= silentFor })
		s.silent[window] = time.Now()
	}
	return answer.Later
}

// callWindow has a window, by its session, perform a call. It stores what it has done before it
// answers.
func (s *Store) callWindow(ctx context.Context, window, method string, call OwnerCall, a *OwnerAnswer) error {
	err := socket.Call(ctx, s.dir, window, method, call, a)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.silent, window)
	}
	return err
}

// isSilent reports whether a window has lately given no sign of life.
func (s *Store) isSilent(window string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	since, ok := s.silent[window]
	return ok && time.Since(since) < silentFor
}

// AtOwner performs a call of a tool that has failed with err because another window runs
// the process: it sends the call to that window, once. done is false if the error has
// another reason, or the window cannot be asked; then the error to report is returned.
func (p *Project) AtOwner(ctx context.Context, tool string, given args.Given, err error) (a OwnerAnswer, done bool, _ error) {
	var kept *keepError
	if errors.As(err, &kept) {
		a, err = p.atDaemon(ctx, tool, given, kept)
		return a, err == nil, err
	}
	var away *WindowError
	if !errors.As(err, &away) || away.why != nil || p.received {
		return a, false, err
	}
	_, name := p.o.Store.split(away.run.Project, away.run.Spec.Name)
	rewritten, ok := rename(given, name)
	if !ok {
		return a, false, err
	}
	call := OwnerCall{Tool: tool, Arguments: rewritten, Allowed: p.o.Manager.Allowed(), By: p.by}
	a, err = p.o.Store.atOwner(ctx, &away.run, call)
	if err != nil {
		return a, false, err
	}
	return a.named(&away.run), true, nil
}

// rename replaces the name of the process in the arguments of a tool. It reports false if
// the arguments name several processes, or none.
func rename(given args.Given, name string) (args.Given, bool) {
	for _, key := range []string{"process", "name"} {
		if now := given.Text(key); now != "" && !strings.Contains(now, ",") {
			renamed, err := given.With(key, name)
			return renamed, err == nil
		}
	}
	return nil, false
}

// ReachWindows makes the sockets of other windows known: they are in the registry directory
// dir. within is how long a read waits for a sign of life of another window, 2 s if it is 0.
// ReachWindows must be called before the Store is used.
func (s *Store) ReachWindows(dir string, within time.Duration) {
	s.dir, s.within = dir, cmp.Or(within, lifeWithin)
}

// atOwner sends a call about run to the window that owns it. It returns a WindowError if
// the window cannot be asked.
func (s *Store) atOwner(ctx context.Context, run *Run, call OwnerCall) (a OwnerAnswer, err error) {
	call.Project, call.Run, call.By = run.Project, run.RunID, s.Actor(call.By)
	_, call.Process = s.split(run.Project, run.Spec.Name)
	if s.dir == "" {
		return a, &WindowError{run: *run, why: errNoSocket}
	}
	bounded, cancel := context.WithTimeout(ctx, ownerCallLimit)
	defer cancel()
	err = s.callWindow(bounded, run.Owner.session, callMethod, call, &a)
	var refusal socket.Refusal
	switch {
	case errors.Is(err, socket.ErrUnavailable):
		return a, &WindowError{run: *run, why: errNoSocket}
	case errors.As(err, &refusal):
		return a, &WindowError{run: *run, why: fmt.Errorf("it refused the call: %w", refusal)}
	case errors.Is(err, socket.ErrUnknownOutcome):
		return a, fmt.Errorf("%s: the pmcp server that owns it (%s) ended or hung before it answered: %w, and the call was not repeated; list_processes shows what runs", run.Spec.Name, run.Owner, socket.ErrUnknownOutcome)
	}
	return a, err
}

// CheckCall returns an error unless the process of c runs here, in the run that its caller
// has seen. A call that starts a process must be for a session of the daemon.
func (p *Project) CheckCall(c OwnerCall) error {
	name, run := c.Process, c.Run
	if c.Starts && !p.o.Keep.Here {
		return errors.New("it keeps nothing beyond its end")
	}
	if c.Starts || c.ofGroup {
		return nil
	}
	st, err := p.o.Manager.Status(p.o.Store.address(p.name, name))
	if err == nil && st.RunID != run {
		err = fmt.Errorf("%s has another run by now (%d)", name, st.Run)
	}
	return err
}

// CheckAllowed returns an error unless the executables that this session allows are also
// allowed to a caller in another window, which has that list; nil allows any.
func (p *Project) CheckAllowed(callers []string) error {
	if callers == nil || slices.Equal(slices.Sorted(slices.Values(callers)), slices.Sorted(slices.Values(p.o.Manager.Allowed()))) {
		return nil
	}
	return errors.New("the PM_ALLOWED_COMMANDS of the two servers differ, and both must hold")
}

// OwnedBy returns the name of the process if err was returned because another window runs
// it or the daemon is to run it, and none was asked yet; else "".
func OwnedBy(err error) string {
	var kept *keepError
	if errors.As(err, &kept) {
		return kept.name
	}
	var away *WindowError
	if !errors.As(err, &away) || away.why != nil {
		return ""
	}
	return away.run.Spec.Name
}

// DecodeOwnerCall returns the call of another window, the arguments of which name its
// process. The error is for that window.
func DecodeOwnerCall(method string, params json.RawMessage) (call OwnerCall, err error) {
	if method != callMethod && method != startMethod && method != groupMethod {
		return call, fmt.Errorf("there is no method %.100q", method)
	}
	if err := json.Unmarshal(params, &call); err != nil {
		return call, fmt.Errorf("invalid call: %w", err)
	}
	call.By = cmp.Or(cleanActor(call.By), actorWindow)
	if method == groupMethod {
		return decodeGroupCall(call)
	}
	renamed, ok := rename(call.Arguments, call.Process)
	if !ok {
		return call, fmt.Errorf("the arguments of %.100q do not name one process", call.Tool)
	}
	call.Arguments, call.Starts = renamed, method == startMethod
	return call, nil
}

// startMethod is the method of an OwnerCall that starts a process which runs nowhere.
const startMethod = "start"

// groupMethod is the method of an OwnerCall that starts a group. Its Process is the name of that.
const groupMethod = "group"

// decodeGroupCall returns a call of groupMethod with the name of its group as argument.
func decodeGroupCall(call OwnerCall) (_ OwnerCall, err error) {
	if call.Tool != startGroupTool {
		return call, fmt.Errorf("%.100q does not start a group", call.Tool)
	}
	call.Arguments, err = call.Arguments.With("group", call.Process)
	call.ofGroup = true
	return call, err
}
