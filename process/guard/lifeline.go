package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The descriptors that the server inherits from the guardian, after stdin,
// stdout and stderr.
const (
	lifelineFD = 3
	lockFD     = 4
)

// Lifeline is the server's end of the pipe to its guardian.
type Lifeline struct {
	guardian int
	pipe     *os.File
	lock     *os.File
	gone     chan struct{}
	changed  chan struct{}
	done     chan struct{}
}

// Inherit takes over the descriptors and the variable that the guardian left and
// starts to listen on the lifeline. It fails if descriptor 3 is not a pipe, as when a
// person types the server's command by hand. It is to be called before
// anything else opens a file, and once.
func Inherit() (*Lifeline, error) {
	if !isKind(lifelineFD, unix.S_IFIFO) {
		return nil, fmt.Errorf("cannot listen to the guardian: descriptor %d is not its pipe; %s is started by pmcp itself", lifelineFD, Verb)
	}
	// The pipe is ours alone by now, so that the mode changes for no one else.
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
	l.guardian, _ = strconv.Atoi(os.Getenv(guardianEnv))
	_ = os.Unsetenv(guardianEnv) // it is nothing for children
	return l, nil
}

func isKind(fd int, kind uint32) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && uint32(st.Mode)&unix.S_IFMT == kind
}

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

// read runs until the guardian is dead or Close is called.
func (l *Lifeline) read() {
	defer close(l.done)
	buf := make([]byte, 16)
	for {
		n, err := l.pipe.Read(buf)
		if n > 0 {
			select {
			case l.changed <- struct{}{}:
			default: // an earlier change was not taken yet
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

// Guardian is the guardian's pid. It may be dead, and the parent another process.
func (l *Lifeline) Guardian() int { return l.guardian }

// Gone is closed when the guardian is dead. It stays open after Close.
func (l *Lifeline) Gone() <-chan struct{} { return l.gone }

// ParentChanged gets a value when the guardian has seen its parent change: the
// client, or a wrapper between the client and pmcp, has ended. Changes that
// nobody took in between count as one.
func (l *Lifeline) ParentChanged() <-chan struct{} { return l.changed }

// Lock is the record's lock as inherited, nil if the guardian passed none. It
// is locked while any copy is open: keep the Lifeline reachable, or close the
// lock, last of all.
func (l *Lifeline) Lock() *os.File { return l.lock }

// Close stops listening. It must not return before the reading goroutine has
// ended. The lock stays open. Calling it again is harmless.
func (l *Lifeline) Close() error {
	err := l.pipe.Close()
	<-l.done
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}
