package guard

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo-terminal and returns its two ends.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = master.Close() })
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

func TestForegroundIsFalseForBackgroundJob(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
		attr       syscall.SysProcAttr
	}{
		{"foreground", "true true", nil, syscall.SysProcAttr{Setsid: true, Setctty: true}},
		{"background job", "true false", []string{"job"}, syscall.SysProcAttr{Setsid: true, Setctty: true}},
		{"another session's terminal", "true true", nil, syscall.SysProcAttr{Setsid: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, slave := openTerminal(t)
			self, err := os.Executable()
			must(t, err)
			cmd := exec.Command(self, append([]string{"foreground"}, c.args...)...)
			cmd.Stdin, cmd.Stdout = slave, slave
			cmd.SysProcAttr = &c.attr
			cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
			stderr, err := cmd.StderrPipe()
			must(t, err)
			must(t, cmd.Start())
			line, err := bufio.NewReader(stderr).ReadString('\n')
			if got := strings.TrimSpace(line); got != c.want || err != nil {
				t.Errorf("terminal, ours = %q, %v; want %s", got, err, c.want)
			}
			_ = cmd.Wait()
		})
	}
}
