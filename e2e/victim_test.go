package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A victim is a launched pmcp that receives some calls and is then killed. All requests
// are written at once, without waiting for answers, so that pmcp can be killed at any
// moment. The client of a victim answers no ping.
type victim struct {
	arena    *arena
	launched int       // pid of the guardian, or of the server with --no-guardian
	cmd      *exec.Cmd // the process that the test started: pmcp, or a stand-in client
	in       *os.File
	out      *os.File
	answers  chan struct{} // one value for each answer; closed when the output ends
	wrong    chan string   // the first line of output that is not a valid message
	exited   chan struct{}
}

// clientScript starts pmcp in the background with the script's standard input and output,
// prints pmcp's pid, and waits.
const clientScript = `exec 4<&0
"$@" <&4 4<&- 3>&- &
echo $! >&3
exec 3>&-
wait`

// launchVictim starts pmcp as a victim. If client is set, pmcp is a child of a stand-in
// client.
func (a *arena) launchVictim(client bool) (_ *victim, err error) {
	var argv []string
	if client {
		argv = []string{"/bin/sh", "-c", clientScript, "client"}
	}
	return a.launchVictimOf(argv)
}

// launchVictimOf is launchVictim with the command of the stand-in client, which prints pmcp's pid
// to descriptor 3; nil for none.
func (a *arena) launchVictimOf(argv []string, more ...string) (_ *victim, err error) {
	client := argv != nil
	cmd, stderr, err := a.command(argv, more...)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	v := &victim{arena: a, cmd: cmd, answers: make(chan struct{}, 1000), wrong: make(chan string, 1), exited: make(chan struct{})}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	pidR, pidW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	v.in, v.out = inW, outR
	cmd.Stdin, cmd.Stdout = inR, outW
	if client {
		cmd.ExtraFiles = []*os.File{pidW}
	}
	err = cmd.Start()
	for _, f := range []*os.File{inR, outW, pidW} {
		f.Close()
	}
	defer pidR.Close()
	if err != nil {
		return nil, errors.Join(err, inW.Close(), outR.Close())
	}
	go v.read()
	go func() {
		_ = cmd.Wait() // ignore the error: the exit code does not matter
		close(v.exited)
	}()
	v.launched = cmd.Process.Pid
	if client {
		if _, err := fmt.Fscan(pidR, &v.launched); err != nil {
			return nil, fmt.Errorf("the stand-in client printed no pid: %w", err)
		}
	}
	if err := v.awaitExec(); err != nil {
		return nil, errors.Join(err, v.close())
	}
	return v, nil
}

// awaitExec waits until the launched process executes pmcp. Before that, a kill would hit
// a shell that has not yet entered the cgroup.
func (v *victim) awaitExec() error {
	deadline := time.NewTimer(answersWithin)
	defer deadline.Stop()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for {
		if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", v.launched)); err == nil && path == build.path {
			return nil
		}
		select {
		case <-tick.C:
		case <-v.exited:
			return errors.New("the launched process exited before it executed pmcp")
		case <-deadline.C:
			return fmt.Errorf("the launched process has not executed pmcp after %v", answersWithin)
		}
	}
}

func (v *victim) read() {
	defer close(v.answers)
	defer v.out.Close()
	for r := bufio.NewReader(v.out); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return // do not report this: a SIGKILL may cut off the last line
		}
		m, err := parse(line)
		switch {
		case err != nil:
			select {
			case v.wrong <- fmt.Sprintf("%v: %q", err, line):
			default:
			}
		case m.Method == "":
			select {
			case v.answers <- struct{}{}:
			default:
			}
		}
	}
}

const initializeVictim = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"victim","version":"1"}}}` + "\n"

// tell writes to pmcp the handshake and one start_process for each element of starts.
func (v *victim) tell(starts []args) error {
	return v.write(initializeVictim+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n", starts)
}

// ask writes one start_process for each element of starts, without a handshake. pmcp
// cannot ping a client that did not send initialize, so the session waits for the client,
// whichever process dies.
func (v *victim) ask(starts []args) error { return v.write("", starts) }

func (v *victim) write(greeting string, starts []args) error {
	var b strings.Builder
	b.WriteString(greeting)
	for i, start := range starts {
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": i + 1, "method": "tools/call", "params": args{"name": "start_process", "arguments": start}})
		if err != nil {
			return err
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	_, err := v.in.WriteString(b.String())
	return err
}

// await waits for n answers. It returns an error if the output ends first.
func (v *victim) await(n int) error {
	timer := time.NewTimer(answersWithin)
	defer timer.Stop()
	for range n {
		select {
		case _, more := <-v.answers:
			if !more {
				return errors.New("the output ended before the answer")
			}
		case <-timer.C:
			return fmt.Errorf("no answer within %v", answersWithin)
		}
	}
	return nil
}

// server returns the pid of pmcp's server, the child of the guardian that leads a session,
// as the server does from its first instruction on. The launched process must not have
// been reaped.
func (v *victim) server() (pid int, ok bool) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, false
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok && s.parent == v.launched && s.session == pid && s.state != 'Z' {
			return pid, true
		}
	}
	return 0, false
}

// awaitServer waits until pmcp's server runs and returns its pid.
func (v *victim) awaitServer() (pid int, err error) {
	if !poll(answersWithin, func() bool { pid, _ = v.server(); return pid != 0 }) {
		return 0, fmt.Errorf("there is no server after %v", answersWithin)
	}
	return pid, nil
}

func (v *victim) signal(sig syscall.Signal) error { return syscall.Kill(v.launched, sig) }

// close lets the victim go on, whatever its state, and waits until it has ended.
func (v *victim) close() error {
	_ = v.in.Close() // ignore the error: some faults have closed it
	var errs []error
	if !closedWithin(v.exited, endsWithin) {
		errs = append(errs, fmt.Errorf("pid %d has not exited after %v", v.cmd.Process.Pid, endsWithin), v.cmd.Process.Kill())
		<-v.exited
	}
	timer := time.NewTimer(endsWithin)
	defer timer.Stop()
	for more := true; more; {
		select {
		case _, more = <-v.answers:
		case <-timer.C:
			errs = append(errs, errors.New("a process still holds the output open"))
			v.out.Close()
		}
	}
	select {
	case what := <-v.wrong:
		errs = append(errs, fmt.Errorf("on standard output: %s", what))
	default:
	}
	return errors.Join(errs...)
}

// visit starts pmcp again, waits until ok returns true, and ends pmcp. Tests use it to
// check what a session does about earlier sessions.
func (a *arena) visit(ok func() (bool, error)) error {
	v, err := a.launchVictim(false)
	if err != nil {
		return err
	}
	if err := errors.Join(v.tell(nil), v.await(1)); err != nil {
		return errors.Join(fmt.Errorf("the next server: %w", err), v.close())
	}
	var last error
	done := poll(endsWithin, func() bool {
		var done bool
		done, last = ok()
		return done
	})
	err = v.close()
	if !done {
		err = errors.Join(err, last, fmt.Errorf("the next server did not do its work within %v", endsWithin))
	}
	return err
}
