package host

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// protocol is the version of the Hello and of the answer to it.
const protocol = 1

// The bounds of the first line of each side.
const (
	answerTime = startTime + helloTime // until the answer must have come, 30 s
	maxHello   = 4 << 20               // bytes; Linux bounds an environment to 2 MiB, and JSON may double that
	maxAnswer  = 64 << 10
	maxLimits  = 1000 // bytes; there are 16 limits
)

// A Hello is the line that opens a connection.
type Hello struct {
	Protocol int `json:"pmcp"`
	// Version is that of the caller's program, for the log.
	Version string `json:"version"`
	// Keeper asks for a session without a client: the answer has its id, and the
	// connection ends. Gone is the id of a keeper that could not be reached: it is not the
	// answer.
	Keeper bool   `json:"keeper,omitempty"`
	Gone   string `json:"gone,omitempty"`
	// Program is the absolute path of the caller's program, which the session runs, so that
	// its version is that of the caller. The daemon's own takes the place of one that is
	// gone.
	Program string `json:"program,omitempty"`
	// Dir is the working directory of the session.
	Dir string `json:"cwd"`
	// Env is the whole environment of the session. It is not logged.
	Env   []string `json:"env"`
	Umask int      `json:"umask"`
	// Limits are the niceness and the resource limits of the session; see guardian.Limits.
	// "" leaves those of the daemon.
	Limits string `json:"limits,omitempty"`
	// Token is PM_DAEMON_TOKEN, which is not in Env. It is not sent over TCP: see prover.
	Token string `json:"token,omitempty"`
}

// tokenVariable is the variable with the token, which no session gets.
const tokenVariable = "PM_DAEMON_TOKEN"

// NewHello returns the Hello of this process, which has that Umask and those limits, with the
// variables of settings in place of its own.
func NewHello(version, token string, umask int, limits string, settings map[string]string) (Hello, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Hello{}, fmt.Errorf("the working directory is not known: %w", err)
	}
	h := Hello{Protocol: protocol, Version: version, Dir: dir, Umask: umask, Limits: limits, Token: token}
	h.Program, _ = os.Executable()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); settings[name] == "" {
			h.Env = append(h.Env, entry)
		}
	}
	for name, value := range settings {
		h.Env = append(h.Env, name+"="+value)
	}
	slices.Sort(h.Env)
	return h, nil
}

// Umask returns the umask of this process. Where only setting another one shows it, what is
// created in that moment is closed to others: call it before there are files and children.
func Umask() int {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			if value, found := strings.CutPrefix(line, "Umask:"); found {
				if n, err := strconv.ParseInt(strings.TrimSpace(value), 8, 32); err == nil {
					return int(n)
				}
			}
		}
	}
	old := unix.Umask(0o077)
	unix.Umask(old)
	return old
}

// check returns the reason why the Hello is not accepted. token is what it must have, "" for none.
func (h *Hello) check(token string) error {
	given, want := sha256.Sum256([]byte(h.Token)), sha256.Sum256([]byte(token))
	switch {
	case token != "" && subtle.ConstantTimeCompare(given[:], want[:]) != 1:
		return errToken
	case h.Protocol != protocol:
		return fmt.Errorf("%w (protocol %d, not %d): end it with SIGTERM, the next call starts another", errOtherVersion, protocol, h.Protocol)
	case !filepath.IsAbs(h.Dir):
		return fmt.Errorf("invalid hello: cwd %.200q is not an absolute path", h.Dir)
	case h.Umask < 0 || h.Umask > 0o777:
		return fmt.Errorf("invalid hello: umask %d", h.Umask)
	case len(h.Limits) > maxLimits || strings.Trim(h.Limits, "0123456789: -") != "":
		return errors.New("invalid hello: limits")
	}
	return nil
}

// errOtherVersion means that the caller and the daemon do not understand each other.
var errOtherVersion = errors.New("the daemon is of another version")

// key identifies the keepers that suit the Hello: all of it except the caller.
func (h *Hello) key() [sha256.Size]byte {
	raw, _ := json.Marshal([]any{h.Program, h.Dir, slices.Sorted(slices.Values(h.Env)), h.Umask, h.Limits}) // text and numbers always encode
	return sha256.Sum256(raw)
}

// environ returns the environment of the session's process: without the token and the address
// that needs it, and without the marks of a session in which the caller itself runs.
func (h *Hello) environ() []string {
	drop := []string{tokenVariable, "PM_DAEMON_TCP_BIND", "PM_DAEMON_TCP_PORT", hostedVariable, proctab.EnvSession, proctab.EnvRun, "PMCP_GUARDIAN"}
	env := slices.DeleteFunc(slices.Clone(h.Env), func(entry string) bool {
		name, _, ok := strings.Cut(entry, "=")
		return !ok || slices.Contains(drop, name)
	})
	kind := kindSession
	if h.Keeper {
		kind = kindKeeper
	}
	return append(env, fmt.Sprintf("%s=%s %o %s", hostedVariable, kind, h.Umask, h.Limits))
}

// An answer is the line that answers a Hello: the id of the session, or why there is none.
// Busy means that there is no room for the connection now: package socket refuses it so.
type answer struct {
	Session string `json:"session,omitempty"`
	Error   string `json:"error,omitempty"`
	Busy    bool   `json:"busy,omitempty"`
}

// A Refusal is the reason why a daemon gave no session.
type Refusal string

// Error returns the reason.
func (r Refusal) Error() string { return "the pmcp daemon refused: " + string(r) }

// errNoAnswer means that the connection ended before there was an answer.
var errNoAnswer = errors.New("the pmcp daemon did not answer")

// exchange sends a Hello and reads the answer to it. Over TCP, both sides prove that they know the
// token before. What follows the answer is read from the returned reader.
func exchange(ctx context.Context, c net.Conn, h Hello) (session string, rest *bufio.Reader, err error) {
	if _, foreign := c.(*net.TCPConn); foreign {
		limited, cancel := context.WithTimeout(ctx, proofTime)
		defer cancel()
		if err := prove(limited, c, h.Token); err != nil {
			return "", nil, cmp.Or(ctx.Err(), err)
		}
		h.Token = ""
	}
	line, err := json.Marshal(h)
	if err != nil {
		return "", nil, err
	}
	if len(line) > maxHello {
		return "", nil, Refusal(fmt.Sprintf("the environment takes %d bytes, at most %d can be sent", len(line), maxHello))
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, writeErr := c.Write(append(line, '\n')) // a daemon that refuses may close the connection first
	rest = bufio.NewReaderSize(c, maxAnswer)
	raw, err := rest.ReadSlice('\n')
	switch {
	case caller.Err() != nil:
		return "", nil, caller.Err()
	case ctx.Err() != nil:
		return "", nil, fmt.Errorf("the pmcp daemon gave no answer within %v", answerTime)
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", errNoAnswer, errors.Join(writeErr, err))
	}
	var a answer
	switch err := json.Unmarshal(raw, &a); {
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	case a.Busy:
		return "", nil, errBusy
	case a.Error != "":
		return "", nil, Refusal(a.Error)
	case a.Session == "":
		return "", nil, fmt.Errorf("%w: it named no session", errNoAnswer)
	}
	if !stop() { // the deadline may have been set
		return "", nil, fmt.Errorf("the pmcp daemon gave no answer in time: %w", errNoAnswer)
	}
	return a.Session, rest, nil
}

// errBusy means that the daemon has no room for another connection now.
var errBusy = errors.New("the pmcp daemon has too many connections")

// A Dial connects to the daemon, and starts one if there is none.
type Dial func(ctx context.Context) (net.Conn, error)

// The attempts to begin a session: a daemon may end in the same moment, or have no room for a
// while.
const (
	tries     = 3
	busyTries = 100
	busyPause = 20 * time.Millisecond // and longer each time
)

// begin dials until a connection leads to a session.
func begin(ctx context.Context, dial Dial, h Hello) (c net.Conn, session string, rest *bufio.Reader, err error) {
	for ended, busy := 0, 0; ; {
		if c, err = dial(ctx); err != nil {
			return nil, "", nil, err
		}
		if session, rest, err = exchange(ctx, c, h); err == nil {
			return c, session, rest, nil
		}
		_ = c.Close()
		switch {
		case errors.Is(err, errBusy) && busy < busyTries:
			busy++
			select {
			case <-time.After(min(time.Duration(busy), 10) * busyPause):
			case <-ctx.Done():
				return nil, "", nil, ctx.Err()
			}
		case errors.Is(err, errNoAnswer) && ended < tries-1:
			ended++
		default:
			return nil, "", nil, err
		}
	}
}

// A Caller asks the daemon for a keeper, one call at a time, and remembers which it is.
type Caller struct {
	dial  Dial
	hello func() (Hello, error)
	turn  chan struct{} // one slot, taken by the call that may use session

	session string
}

// NewCaller returns a Caller that says hello by dial.
func NewCaller(dial Dial, hello func() (Hello, error)) *Caller {
	return &Caller{dial: dial, hello: hello, turn: make(chan struct{}, 1)}
}

// Keeper returns the id of a session of the daemon that keeps processes. gone is the id of one
// that could not be reached, or "". The error is a Refusal, that of dial, or ctx's, or says that the
// daemon did not answer or prove itself.
func (c *Caller) Keeper(ctx context.Context, gone string) (session string, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if c.session != "" && c.session != gone {
		return c.session, nil
	}
	h, err := c.hello()
	if err != nil {
		return "", err
	}
	h.Keeper, h.Gone = true, gone
	conn, session, _, err := begin(ctx, c.dial, h)
	if err != nil {
		return "", err
	}
	c.session = session
	return session, conn.Close()
}
