package guard

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestLauncherIsRecognized starts the test binary as clients and shells do, with a stdin that they
// then close, and checks that launcher returns the parent and no other process. If the test has a
// terminal, the terminal alone is enough.
func TestLauncherIsRecognized(t *testing.T) {
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	for how, attr := range map[string]*syscall.SysProcAttr{
		"in its group":               {},
		"in a group of our own":      {Setpgid: true},
		"in the group of a pipeline": {Setpgid: true, Pgid: other.Process.Pid},
		"in a session of our own":    {Setsid: true},
	} {
		t.Run(how, func(t *testing.T) {
			stdin, input, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			wait, released, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			cmd := exec.Command(os.Args[0], "launcher")
			cmd.Stdin, cmd.Stdout, cmd.ExtraFiles, cmd.SysProcAttr = stdin, &out, []*os.File{wait}, attr
			err = cmd.Start()
			_, _, _ = stdin.Close(), input.Close(), wait.Close()
			_ = released.Close()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil || out.String() != "true\n" {
				t.Errorf("got %q, %v, want true", &out, err)
			}
		})
	}
}
