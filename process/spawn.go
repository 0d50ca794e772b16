package process

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/command"
	"pmcp/process/proctab"
)

// spawner starts every child of the server. It records which children have an
// owner that waits for them, so that the reaper takes no status from an owner.
type spawner struct {
	// mu is held for reading from before a fork until the child is in managed,
	// and for writing while zombies are reaped.
	mu      sync.RWMutex
	managed sync.Map // pid (int) → *child that its owner will wait for
}

// child is a started process with our ends of its streams.
type child struct {
	cmd *exec.Cmd
	id  proctab.ID
	// stdin is the write end of the child's standard input, or nil if that is
	// /dev/null. On a terminal it is the same file as the only output.
	stdin *os.File
	// outputs are the read ends of the child's output.
	outputs []output
}

// output is one stream of a child.
type output struct {
	stream uint8
	file   *os.File
}

// start starts exe for spec in its own process group, or in its own session if spec
// asks for a terminal (requesting both fails with EPERM). stamp marks the child and
// all its descendants. useSpare allows the use of spare descriptors, for a child that
// ends soon.
func (s *spawner) start(spec Spec, exe command.Executable, env []string, stamp proctab.Stamp, useSpare bool) (*child, error) {
	ch := &child{cmd: &exec.Cmd{
		Path: exe.Path, Args: append([]string{exe.Argv0}, spec.Args...), Dir: spec.Dir, Env: env,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: !spec.PTY, Setsid: spec.PTY, Setctty: spec.PTY, Ctty: 1}, // 1: the child's stdout
		WaitDelay:   time.Second,                                                                            // os/exec has no copying goroutine here; if it ever has one, Wait cannot hang
	}}
	connect := ch.connectPipes
	if spec.PTY {
		connect = ch.connectTerminal
	}
	theirs, err := connect(spec)
	if err == nil && !useSpare {
		err = checkSpare(theirs)
	}
	if err == nil {
		err = s.fork(ch, stamp)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		ch.closeStreams()
		return nil, err
	}
	return ch, nil
}

// connectPipes gives the command pipes as its streams. theirs are the child's ends;
// the caller closes them after the start. exec.Cmd.StdoutPipe would not do: its Wait
// closes the read end under the reader (46 of 50 runs lost the end of their output).
func (ch *child) connectPipes(spec Spec) (theirs []*os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return theirs, fmt.Errorf("cannot make a pipe: %w", err)
	}
	theirs = append(theirs, w)
	ch.outputs = append(ch.outputs, output{Stdout, r})
	ch.cmd.Stdout, ch.cmd.Stderr = w, w
	if !spec.MergeOutput {
		if r, w, err = os.Pipe(); err != nil {
			return theirs, fmt.Errorf("cannot make a pipe: %w", err)
		}
		theirs = append(theirs, w)
		ch.outputs = append(ch.outputs, output{Stderr, r})
		ch.cmd.Stderr = w
	}
	if spec.Stdin || spec.mcp() {
		if r, w, err = os.Pipe(); err != nil {
			return theirs, fmt.Errorf("cannot make a pipe: %w", err)
		}
		theirs = append(theirs, r)
		ch.stdin, ch.cmd.Stdin = w, r
	}
	return theirs, nil
}

// closeStreams closes our ends of the streams.
func (ch *child) closeStreams() {
	if ch.stdin != nil {
		_ = ch.stdin.Close()
	}
	for _, out := range ch.outputs {
		_ = out.file.Close()
	}
}

// fork starts ch.cmd and adds it to managed before the reaper can see it.
func (s *spawner) fork(ch *child, stamp proctab.Stamp) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := proctab.Stamped(stamp, ch.cmd.Start); err != nil {
		if errors.Is(err, syscall.E2BIG) {
			return tooLongError(ch.cmd.Path, ch.cmd.Args[1:], ch.cmd.Env)
		}
		return startError(ch.cmd.Path, err)
	}
	pid := ch.cmd.Process.Pid
	s.managed.Store(pid, ch)
	// The child is unreaped, so the pid is the child's and in the process table.
	p, err := proctab.Read(pid)
	if err != nil {
		p.PID = pid
	}
	ch.id = p.ID
	return nil
}

// startError returns the error for a file that lookup found but that could not
// be executed.
func startError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		name := interpreter(path)
		_, unseen := os.Stat(cmp.Or(name, path))
		switch {
		case name == "" && unseen != nil:
			return fmt.Errorf("%w: %s does not exist any more", ErrNoExecutable, path)
		case name == "":
			return fmt.Errorf("%w: %s: its loader does not exist", ErrNoExecutable, path)
		case unseen != nil && strings.HasSuffix(name, "\r"):
			return fmt.Errorf("%w: %s: its first line ends in a carriage return, which counts as part of the interpreter %q; give the file Unix line ends: sed -i 's/\\r$//'", ErrNoExecutable, path, name)
		case unseen != nil:
			return fmt.Errorf("%w: %s: its first line names the interpreter %q, which does not exist", ErrNoExecutable, path, name)
		default:
			return fmt.Errorf("%w: %s: its first line names the interpreter %q, whose loader or interpreter does not exist", ErrNoExecutable, path, name)
		}
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("cannot start %s: no further process is allowed: this user (ulimit -u), the cgroup (pids.max) or the machine has reached its limit of processes and threads; stop something, or raise the limit", path)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: %s is neither a program for this machine nor a script with a #! line; name its interpreter as command", ErrNoExecutable, path)
	default:
		return fmt.Errorf("cannot start %s: %w", path, err)
	}
}

// tooLongError returns the error for a file that could not be executed because of the length of an
// argument or a variable, or of all together. It names the longest one without its value.
func tooLongError(path string, args, env []string) error {
	// The limits of Linux: 32 pages for one string with its NUL; for all, with a pointer each, a quarter of
	// the stack, but at least 32 pages and at most 6 MiB.
	one := 32 * os.Getpagesize()
	all := one
	var stack unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_STACK, &stack) == nil {
		all = max(one, int(min(stack.Cur/4, 6<<20)))
	}
	if runtime.GOOS == "darwin" {
		one, all = 1<<20, 1<<20
	}
	longest, size := longestOf(args, env)
	if size >= one {
		return fmt.Errorf("cannot start %s: %s has %d bytes, and the system accepts at most %d in one; put it into a file", path, longest, size, one-1)
	}
	total := 0
	for _, text := range slices.Concat(args, env) {
		total += len(text) + 9
	}
	return fmt.Errorf("cannot start %s: its arguments and environment take %d bytes, and the system accepts about %d (a quarter of ulimit -s); the longest is %s with %d bytes", path, total, all, longest, size)
}

// longestOf names the longest of the arguments and of the NAME=value entries of an environment.
func longestOf(args, env []string) (name string, size int) {
	for i, arg := range args {
		if len(arg) <= size {
			continue
		}
		if name, size = fmt.Sprintf("argument %d", i+1), len(arg); i == 1 && args[0] == "-c" {
			name += " (the command line)"
		}
	}
	for _, entry := range env {
		if len(entry) > size {
			variable, _, _ := strings.Cut(entry, "=")
			name, size = fmt.Sprintf("the environment variable %.60s", variable), len(entry)
		}
	}
	return name, size
}

// interpreter returns the program that the first line of a script names, or "" if the file is not a
// script. As the kernel does, it reads 256 bytes.
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, 256)
	n, _ := io.ReadFull(f, b)
	first, _, _ := strings.Cut(string(b[:n]), "\n")
	line, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return ""
	}
	line = strings.Trim(line, " \t")
	if end := strings.IndexAny(line, " \t"); end >= 0 { // a carriage return belongs to the name, as for the kernel
		line = line[:end]
	}
	return line
}

// wait reaps an exited child and returns its status.
func (s *spawner) wait(ch *child) (status syscall.WaitStatus) {
	_ = ch.cmd.Wait() // the status holds what the error of Wait states
	pid := ch.cmd.Process.Pid
	if state := ch.cmd.ProcessState; state != nil {
		status, _ = state.Sys().(syscall.WaitStatus)
	} else { // a sandbox has no waitid, which os/exec needs
		_, _ = proctab.RetryEINTR(func() (int, error) { return syscall.Wait4(pid, &status, 0, nil) })
	}
	// Not Delete: the pid may already belong to a newer child.
	s.managed.CompareAndDelete(pid, ch)
	return status
}

// reap reaps the zombies in table that are our children and have no owner:
// orphans that this process adopted as their subreaper. While reap holds the
// lock, no child is between fork and its entry in managed, so reap steals no
// status from os/exec (a wait4(-1) loop stole 103 of 480).
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

// spareDescriptors is how many of the server's file descriptors are reserved:
// the streams of processes may not use them. So the server can still read the
// log, check health and keep its record when no further process can be started.
// Four readers of the log take 8 descriptors, and a check takes 8 for a moment.
// If a third of the descriptor limit is less, that third is reserved.
const spareDescriptors = 32

// checkSpare returns an error that wraps EMFILE if files, the streams of a new
// process, use reserved descriptors. The kernel always returns the lowest free
// number, so a high number means that all below it are in use.
func checkSpare(files []*os.File) error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return nil
	}
	spare := min(spareDescriptors, limit.Cur/3)
	for _, f := range files {
		if uint64(f.Fd())+spare >= limit.Cur {
			return fmt.Errorf("%w: %d are in use, and the last %d of %d are kept for the log and the checks", unix.EMFILE, f.Fd(), spare, limit.Cur)
		}
	}
	return nil
}
