package host

import (
	"bufio"
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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// protocol is the version of the Hello and of the answer to it.
const protocol = 1

// The bounds of the first line of each side.
const (
	answerTime = startTime + helloTime // until the answer must have come
	maxHello   = 4 << 20               // bytes; Linux bounds an environment to 2 MiB, and JSON may double that
	maxAnswer  = 64 << 10
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
	// Token is PM_DAEMON_TOKEN, which is not in Env.
	Token string `json:"token,omitempty"`
}

// tokenVariable is the variable with the token, which no session gets.
const tokenVariable = "PM_DAEMON_TOKEN"

// NewHello returns the Hello of this process, with the variables of settings in place of
// its own.
func NewHello(version, token string, settings map[string]string) (Hello, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Hello{}, fmt.Errorf("the working directory is not known: %w", err)
	}
	h := Hello{Protocol: protocol, Version: version, Dir: dir, Umask: umask(), Token: token}
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

// umask returns the umask of this process. The kernel tells it only in exchange for another
// one: for a moment, the files of this process are closed to others.
func umask() int {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return old
}

// check returns the reason why the Hello is not accepted. token is that of the host.
func (h *Hello) check(token string) error {
	given, want := sha256.Sum256([]byte(h.Token)), sha256.Sum256([]byte(token))
	switch {
	case h.Protocol != protocol:
		return fmt.Errorf("the daemon is of another version (protocol %d, not %d): end it with SIGTERM, the next call starts another", protocol, h.Protocol)
	case token != "" && subtle.ConstantTimeCompare(given[:], want[:]) != 1:
		return errors.New("PM_DAEMON_TOKEN is missing or not the daemon's")
	case !filepath.IsAbs(h.Dir):
		return fmt.Errorf("invalid hello: cwd %.200q is not an absolute path", h.Dir)
	case h.Umask < 0 || h.Umask > 0o777:
		return fmt.Errorf("invalid hello: umask %d", h.Umask)
	}
	return nil
}

// key identifies the keepers that do for the Hello: the same but for who asks.
func (h *Hello) key() [sha256.Size]byte {
	raw, _ := json.Marshal([]any{h.Program, h.Dir, slices.Sorted(slices.Values(h.Env)), h.Umask}) // text and numbers always encode
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
	return append(env, fmt.Sprintf("%s=%s %o", hostedVariable, kind, h.Umask))
}

// An answer is the line that answers a Hello: the id of the session, or why there is none.
type answer struct {
	Session string `json:"session,omitempty"`
	Error   string `json:"error,omitempty"`
}

// A Refusal is the reason why a daemon gave no session.
type Refusal string

// Error returns the reason.
func (r Refusal) Error() string { return "the pmcp daemon refused: " + string(r) }

// errNoAnswer means that the connection ended before there was an answer.
var errNoAnswer = errors.New("the pmcp daemon did not answer")

// exchange sends a Hello and reads the answer to it. What follows the answer is read from
// the returned reader.
func exchange(ctx context.Context, c net.Conn, h Hello) (session string, rest *bufio.Reader, err error) {
	line, err := json.Marshal(h)
	if err != nil {
		return "", nil, err
	}
	if len(line) > maxHello {
		return "", nil, Refusal(fmt.Sprintf("the environment takes %d bytes, at most %d can be sent", len(line), maxHello))
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, writeErr := c.Write(append(line, '\n')) // a daemon that refuses may close the connection first
	rest = bufio.NewReaderSize(c, maxAnswer)
	raw, err := rest.ReadSlice('\n')
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errNoAnswer, errors.Join(writeErr, err))
	}
	var a answer
	switch err := json.Unmarshal(raw, &a); {
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	case a.Error != "":
		return "", nil, Refusal(a.Error)
	case a.Session == "":
		return "", nil, fmt.Errorf("%w: it named no session", errNoAnswer)
	}
	if !stop() { // the deadline may have been set
		return "", nil, context.Cause(ctx)
	}
	return a.Session, rest, nil
}

// A Dial connects to the daemon, and starts one if there is none.
type Dial func(ctx context.Context) (net.Conn, error)

// tries is how often a connection is tried that ends without an answer: the daemon may end
// in the same moment.
const tries = 3

// Keeper returns the id of a session of the daemon that keeps processes as h says. gone is
// the id of one that could not be reached, or "". The error is a Refusal, that of dial, or
// ctx's.
func Keeper(ctx context.Context, dial Dial, h Hello, gone string) (session string, err error) {
	h.Keeper, h.Gone = true, gone
	for range tries {
		var c net.Conn
		if c, err = dial(ctx); err != nil {
			return "", err
		}
		session, _, err = exchange(ctx, c, h)
		_ = c.Close()
		if !errors.Is(err, errNoAnswer) {
			return session, err
		}
	}
	return "", err
}
