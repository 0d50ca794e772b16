package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The descriptors that the server has from the guardian, after stdin, stdout and stderr.
const (
	lifelineFD = 3 + iota
	lockFD
	askFD
	daemonFD // only of a daemon
)

// A Lifeline is the server's end of the pipe to its guardian.
type Lifeline struct {
	guardian int
	pipe     *os.File
	lock     *os.File
	ask      *os.File // write end of the pipe on which the server asks for a daemon
	gone     chan struct{}
	changed  chan struct{}
	done     chan struct{}
}

// Inherit takes over the descriptors and the variable from the guardian and starts to listen
// on the lifeline. It fails if descriptor 3 is not a pipe, as when a person types the
// server's command by hand. It must be called once, before anything else opens a file.
func Inherit() (*Lifeline, error) {
	if !isKind(lifelineFD, unix.S_IFIFO) {
		return nil, fmt.Errorf("cannot listen to the guardian: descriptor %d is not its pipe; %s is started by pmcp itself", lifelineFD, Verb)
	}
	// No other process holds this end of the pipe, so the mode changes for no other.
	if err := unix.SetNonblock(lifelineFD, true); err != nil {
		return nil, fmt.Errorf("cannot listen to the guardian: %w", err)
	}
	var lock *os.File
	unix.CloseOnExec(lockFD)
	if isKind(lockFD, unix.S_IFREG) {
		lock = os.NewFile(lockFD, "lock")
	}
	unix.CloseOnExec(lifelineFD)
	l := listen(os.NewFile(lifelineFD, "lifeline"), lock)
	unix.CloseOnExec(askFD)
	if isKind(askFD, unix.S_IFIFO) {
		l.ask = os.NewFile(askFD, "ask")
	}
	l.guardian, _ = strconv.Atoi(os.Getenv(guardianEnv))
	_ = os.Unsetenv(guardianEnv) // children must not inherit the variable
	return l, nil
}

func isKind(fd int, kind uint32) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && uint32(st.Mode)&unix.S_IFMT == kind
}

// listen returns a Lifeline that reads pipe.
func listen(pipe, lock *os.File) *Lifeline {
	l := &Lifeline{
		pipe:    pipe,
		lock:    lock,
		gone:    make(chan struct{}),
		changed: make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	go l.read()
	return l
}

// read reads the lifeline until the guardian is dead or Close is called.
func (l *Lifeline) read() {
	defer close(l.done)
	buf := make([]byte, 16)
	for {
		n, err := l.pipe.Read(buf)
		if n > 0 {
			select {
			case l.changed <- struct{}{}:
			default: // an earlier change was not received yet
			}
		}
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // end of file
			close(l.gone)
			return
		}
	}
}

// Guardian returns the guardian's pid. The guardian may be dead, and our parent then is
// another process.
func (l *Lifeline) Guardian() int { return l.guardian }

// Gone returns a channel that is closed when the guardian is dead. The channel stays open
// after Close.
func (l *Lifeline) Gone() <-chan struct{} { return l.gone }

// ParentChanged returns a channel that gets a value when the guardian has seen its parent
// change: the client, or a wrapper between the client and pmcp, has ended. Changes that were
// not received in between count as one.
func (l *Lifeline) ParentChanged() <-chan struct{} { return l.changed }

// Lock returns the inherited lock of the record, or nil if the guardian passed none. The
// lock is held while any copy of it is open: keep the Lifeline reachable, and close the lock
// last.
func (l *Lifeline) Lock() *os.File { return l.lock }

// Detach asks the guardian to start a daemon that is not a descendant of the session, and
// returns at once: see DetachVerb. An error means that the guardian cannot do it.
func (l *Lifeline) Detach() error {
	if l.ask == nil {
		return errors.New("the guardian is of a version without daemons")
	}
	if _, err := l.ask.Write([]byte{1}); err != nil {
		return fmt.Errorf("cannot ask the guardian for a daemon: %w", err)
	}
	return nil
}

// DaemonLock returns the inherited lock of the daemon, nil if this process is not one. As that of Lock, it
// is held while any copy of it is open.
func DaemonLock() *os.File {
	if !isKind(daemonFD, unix.S_IFREG) {
		return nil
	}
	unix.CloseOnExec(daemonFD)
	return os.NewFile(daemonFD, "daemon")
}

// Close stops listening and returns when the reading goroutine has ended. The lock stays
// open. Further calls do nothing.
func (l *Lifeline) Close() error {
	err := l.pipe.Close()
	<-l.done
	if l.ask != nil {
		_ = l.ask.Close()
	}
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}
