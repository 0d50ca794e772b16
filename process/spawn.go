package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// spawner starts every child of the server and knows which of them somebody
// waits for, so that the reaper takes no status from anyone.
type spawner struct {
	// mu is held for reading from before a fork until the child is in
	// managed, and for writing while zombies are taken.
	mu      sync.RWMutex
	managed sync.Map // pid (int) → *child that its owner will wait for
}

// command is what the spawner is to start.
type command struct {
	path string   // what is executed
	argv []string // argv[0] included
	dir  string
	env  []string
	// stdin asks for a pipe, pty for a terminal, merge for one pipe for both
	// output streams.
	stdin, pty, merge bool
	// brief says that it may take spare descriptors: it ends soon.
	brief bool
}

// child is a started process with our ends of its streams.
type child struct {
	cmd *exec.Cmd
	id  proctab.ID
	pty bool
	// stdin is the write end of its standard input; nil if that is /dev/null.
	// On a terminal it is the same file as the only output.
	stdin *os.File
	// outputs are the read ends of its output.
	outputs []output
}

// output is one stream of a child.
type output struct {
	stream uint8
	file   *os.File
}

// start starts c in a process group of its own, or in a session of its own if
// it gets a terminal (both together is EPERM).
func (s *spawner) start(c command) (*child, error) {
	ch := &child{pty: c.pty, cmd: &exec.Cmd{
		Path: c.path, Args: c.argv, Dir: c.dir, Env: c.env,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: !c.pty, Setsid: c.pty, Setctty: c.pty, Ctty: 1}, // 1: its stdout
		WaitDelay:   time.Second,                                                                   // no goroutine copies for us; should one ever, Wait cannot hang
	}}
	theirs, err := ch.connect(c)
	if err == nil && !c.brief {
		err = leaveSpare(theirs)
	}
	if err == nil {
		err = s.fork(ch)
	}
	closeAll(theirs)
	if err != nil {
		ch.closeStreams()
		return nil, err
	}
	return ch, nil
}

// connect gives the command its streams. theirs are the child's ends, which
// are ours to close once it has been started.
func (ch *child) connect(c command) (theirs []*os.File, err error) {
	if c.pty {
		return ch.connectTerminal(c.stdin)
	}
	return ch.connectPipes(c)
}

// connectPipes makes own pipes: never exec.Cmd.StdoutPipe, whose Wait closes
// the read end under the reader (46 of 50 runs lost their tail so).
func (ch *child) connectPipes(c command) (theirs []*os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return theirs, fmt.Errorf("cannot make a pipe: %w", err)
	}
	theirs = append(theirs, w)
	ch.outputs = append(ch.outputs, output{Stdout, r})
	ch.cmd.Stdout, ch.cmd.Stderr = w, w
	if !c.merge {
		if r, w, err = os.Pipe(); err != nil {
			return theirs, fmt.Errorf("cannot make a pipe: %w", err)
		}
		theirs = append(theirs, w)
		ch.outputs = append(ch.outputs, output{Stderr, r})
		ch.cmd.Stderr = w
	}
	if c.stdin {
		if r, w, err = os.Pipe(); err != nil {
			return theirs, fmt.Errorf("cannot make a pipe: %w", err)
		}
		theirs = append(theirs, r)
		ch.stdin, ch.cmd.Stdin = w, r
	}
	return theirs, nil
}

// closeStreams closes our ends.
func (ch *child) closeStreams() {
	if ch.stdin != nil {
		_ = ch.stdin.Close()
	}
	for _, out := range ch.outputs {
		_ = out.file.Close()
	}
}

// fork starts ch.cmd and enters it as managed before the reaper can see it.
func (s *spawner) fork(ch *child) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := ch.cmd.Start(); err != nil {
		return startError(ch.cmd.Path, err)
	}
	pid := ch.cmd.Process.Pid
	s.managed.Store(pid, ch)
	// Not waited for yet, so the pid is ours and the row is there.
	p, err := proctab.Read(pid)
	if err != nil {
		p.PID = pid
	}
	ch.id = p.ID
	return nil
}

// startError says why the file, which lookup has seen, could not be executed.
func startError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s: the interpreter that its first line names, or its loader, does not exist", ErrNoExecutable, path)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: %s is neither a program for this machine nor a script with a #! line; name its interpreter as command", ErrNoExecutable, path)
	default:
		return fmt.Errorf("cannot start %s: %w", path, err)
	}
}

// wait takes the status of an ended child.
func (s *spawner) wait(ch *child) *os.ProcessState {
	_ = ch.cmd.Wait() // its error says again what ProcessState says
	// Not a plain Delete: the pid may be a newer child's by now.
	s.managed.CompareAndDelete(ch.cmd.Process.Pid, ch)
	return ch.cmd.ProcessState
}

// reap takes the zombies among table that are our children and that nobody
// waits for: orphans that the kernel gave to us as their subreaper. Under the
// lock no child is between fork and its entry in managed, so no status is
// stolen from os/exec (a wait4(-1) loop stole 103 of 480).
func (s *spawner) reap(table []proctab.Proc) {
	self := os.Getpid()
	for _, p := range table {
		if !p.Zombie || p.PPID != self {
			continue
		}
		if _, managed := s.managed.Load(p.PID); managed {
			continue
		}
		s.mu.Lock()
		if _, managed := s.managed.Load(p.PID); !managed {
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(p.PID, &status, syscall.WNOHANG, nil)
		}
		s.mu.Unlock()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
