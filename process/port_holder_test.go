package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"pmcp/process/proctest"
)

// stranger starts the helper "listen" in dir, as no descendant of this process, and returns its pid
// once it listens.
func stranger(t *testing.T, dir string, env []string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `"$0" "$@" & echo $!`, executablePath()}, args...)...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), helperEnv+"=listen", "PMCP_SESSION="), env...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	cmd.Stdout = w
	err = runUnstamped(cmd)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	text, _ := lines.ReadString('\n')
	if _, err := fmt.Sscan(text, &pid); err != nil {
		t.Fatalf("got %q from the shell, want a pid", text)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if text, err = lines.ReadString('\n'); !strings.HasPrefix(text, "listening ") {
		t.Fatalf("got %q, %v from the stranger, want the port", text, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return pid
}

// TestHolderIsComparedWithSeeker checks what is said of the process that holds a port, from the view of
// one that needs the port.
func TestHolderIsComparedWithSeeker(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	link := filepath.Join(other, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	const at = `( on \d{4}-\d\d-\d\d)? at \d\d:\d\d`
	for name, c := range map[string]struct {
		dir, more string // of the seeker
		env       []string
		want      string // after the command; %d is the pid
	}{
		"other directory": {other, "", nil, ` in ` + regexp.QuoteMeta(dir) + `, started elsewhere` + at},
		"same directory":  {dir, "more", nil, ` in the same directory, started elsewhere` + at},
		"same program":    {dir, "", nil, ` in the same directory, started elsewhere` + at + ` \(a stale copy of this program: kill %d\)`},
		"symbolic link":   {link, "", nil, ` in the same directory, started elsewhere` + at + ` \(a stale copy of this program: kill %d\)`},
		"another session": {dir, "", []string{"PMCP_SESSION=other"}, ` in the same directory, started elsewhere` + at + ` \(a stale copy of this program\)`},
	} {
		t.Run(name, func(t *testing.T) {
			port := proctest.FreePort(t)
			args := []string{"tcp", fmt.Sprintf("127.0.0.1:%d", port)}
			pid := stranger(t, dir, c.env, args...)
			m, _ := newTestManager(t, Options{})
			spec := helper("a", "listen", append(args, strings.Fields(c.more)...)...)
			spec.Dir = c.dir
			start(t, m, spec)
			awaitEnd(t, m, "a")
			want := fmt.Sprintf(`^port %d is held by pid %d \([^)]+\)`, port, pid)
			if want += c.want; strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, pid)
			}
			if got, pids := m.HeldPort(port, "a", false); !regexp.MustCompile(want+"$").MatchString(got) || len(pids) == 0 || pids[0] != pid {
				t.Errorf("got %q of %v, want %s", got, pids, want)
			}
		})
	}
}

func TestPortWithoutListenerHasNoHolder(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	if got, pids := m.TakenPort(1, "a", true); got != "" || pids != nil {
		t.Errorf("got %q, %v; want no holder", got, pids)
	}
}

func TestHolderOfThisSessionIsNamed(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("a", "listen", "tcp", "127.0.0.1:0"))
	port := j.port(testContext(t), st.RunID)
	for name, c := range map[string]struct{ seeker, want string }{
		"same directory":  {st.Spec.Dir, " of a in this session"},
		"other directory": {t.TempDir(), " of a in this session in " + st.Spec.Dir},
	} {
		held := m.holder(port, Spec{Dir: c.seeker})
		if !strings.HasSuffix(held.text, c.want) || held.pid != st.PID || !held.ours || held.entry != "a" {
			t.Errorf("%s: got %+v, want pid %d, ours, %q", name, held, st.PID, c.want)
		}
	}
	if got, _ := m.HeldPort(port, "a", false); got != "" {
		t.Errorf("got %q, want nothing of a's own process", got)
	}
	if got, _ := m.HeldPort(port, "a", true); !strings.HasPrefix(got, fmt.Sprintf("port %d is held by pid %d ", port, st.PID)) {
		t.Errorf("got %q, want a's own process", got)
	}
}
