package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
	"pmcp/process/proctest"
)

// TestLeakedDescriptorsAreNotInherited checks that a descriptor that the client leaked into
// the guardian reaches neither the server nor its children.
func TestLeakedDescriptorsAreNotInherited(t *testing.T) {
	leaked, err := os.Create(filepath.Join(t.TempDir(), "leaked"))
	must(t, err)
	defer func() { _ = leaked.Close() }()
	s := start(t, []string{"normal"}, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) {
			for range 7 { // descriptors 3 to 9 are more than the server inherits on purpose
				cmd.ExtraFiles = append(cmd.ExtraFiles, leaked)
			}
		}
	})
	s.ready()
	s.grow("plain")
	holds := func(pid int) bool {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		must(t, err)
		return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
			return path == leaked.Name()
		})
	}
	if !holds(s.cmd.Process.Pid) {
		t.Error("the guardian holds no leaked file: the test proves nothing")
	}
	table, err := proctab.All()
	must(t, err)
	below := proctab.Descendants(table, s.cmd.Process.Pid)
	if len(below) < 2 {
		t.Fatalf("got descendants %v, want the server and its child", below)
	}
	for _, p := range below {
		if holds(p.PID) {
			t.Errorf("%d (%s) holds the leaked file, want only the guardian to", p.PID, p.Comm)
		}
	}
	must(t, s.stdin.Close())
	s.wantGone()
}

// TestUnkillableChildIsReported checks that an unprivileged guardian that cannot kill a child that
// became root stops trying, reports the child and keeps its record in the registry.
func TestUnkillableChildIsReported(t *testing.T) {
	const nobody = 65534
	if os.Getuid() != 0 {
		t.Skip("only root can create a process that cannot be killed")
	}
	dir, err := os.MkdirTemp("", "unkillable")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o777))
	skipWithoutSetuid(t, dir)
	ours := filepath.Join(dir, "pmcp")
	roots := filepath.Join(dir, "root")
	copySelf(t, ours, 0o755)
	copySelf(t, roots, 0o755|os.ModeSetuid)

	s := start(t, []string{"normal"}, func(o *sessionOptions) {
		o.cleanLimit, o.record = "300ms", filepath.Join(dir, "record")
		o.prepare = func(cmd *exec.Cmd) {
			cmd.Path = ours
			cmd.Dir = "/"
			cmd.Env = append(cmd.Env, "SHELL_COPY=/bin/sh", "ROOT_COPY="+roots)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
	})
	server := s.ready()
	s.grow("unkillable")
	must(t, syscall.Kill(server, syscall.SIGKILL))
	if got := s.exitCode(); got != 1 {
		t.Errorf("got exit code %d, want 1", got)
	}
	if _, err := os.Stat(s.record); err != nil {
		t.Errorf("the record: got %v, want it kept while a process is left", err)
	}
	for _, p := range s.holders() {
		if p.Comm == "root" {
			must(t, syscall.Kill(p.PID, syscall.SIGKILL))
		}
	}
	<-s.gone
	if got := s.reports(); !strings.Contains(got, "cannot kill") || !strings.Contains(got, "(root)") {
		t.Errorf("got reports %q, want that root cannot be killed", got)
	}
}

// skipWithoutSetuid skips the test if a program in dir cannot become root.
func skipWithoutSetuid(t *testing.T, dir string) {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(dir, &fs))
	if fs.Flags&unix.ST_NOSUID != 0 {
		t.Skip(dir, "is on a file system without setuid")
	}
	if never, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || never != 0 {
		t.Skip("no process here may gain privileges:", never, err)
	}
}

// copySelf copies the test binary to path.
func copySelf(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	content, err := os.ReadFile(self)
	must(t, err)
	proctest.WriteProgram(t, path, content, mode)
}
