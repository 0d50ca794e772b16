package host

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// hostedVariable informs a session that a Host has started it, of which kind it is, its umask, and
// its limits, which package registry/guardian takes over before Go begins.
const hostedVariable = "PMCP_HOSTED"

const (
	kindSession = "session"
	kindKeeper  = "keeper"
)

// A Hosted is what a session knows of the Host that has started it.
type Hosted struct {
	// Keeper means that the session has no client.
	Keeper bool
}

// Inherit returns nil if no Host has started this process. Otherwise it sets the umask of
// the process, and removes what children must not inherit from its environment. It must be
// called once, before a file is created.
func Inherit() (*Hosted, error) {
	value, ok := os.LookupEnv(hostedVariable)
	if !ok {
		return nil, nil
	}
	_ = os.Unsetenv(hostedVariable)
	var kind string
	var umask int
	if _, err := fmt.Sscanf(value, "%s %o", &kind, &umask); err != nil || kind != kindSession && kind != kindKeeper {
		return nil, fmt.Errorf("%s=%q is for pmcp itself", hostedVariable, value)
	}
	unix.Umask(umask)
	return &Hosted{Keeper: kind == kindKeeper}, nil
}

// AnswerCaller writes to the caller, through the session's stdout, that the session with that id is
// ready or, if err is not nil, why it cannot start.
func (h *Hosted) AnswerCaller(stdout io.Writer, session string, err error) error {
	a := answer{Session: session}
	if err != nil {
		a = answer{Error: err.Error()}
	}
	line, encodeErr := json.Marshal(a)
	if encodeErr != nil {
		return encodeErr
	}
	_, err = stdout.Write(append(line, '\n'))
	return err
}

// Disconnect closes the connection of a session that continues without its client.
func (h *Hosted) Disconnect(stdin *os.File) {
	if h.Keeper {
		return
	}
	if raw, err := stdin.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
}
