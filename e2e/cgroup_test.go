package e2e

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cgroup is a control group of a test's own: the kernel's word on what a session
// has left, from which neither a session, a group nor an environment of its own
// hides a process, and of which pmcp knows nothing.
type cgroup struct {
	dir  string
	path string // as /proc/PID/cgroup names it
}

// newCgroup makes one, removed at the end of the test, or gives nil where that
// is not allowed.
func newCgroup(t testing.TB) *cgroup {
	t.Helper()
	name := "pmcp" + strings.ReplaceAll(t.TempDir(), "/", "-")
	for _, parent := range ownCgroups() {
		c := &cgroup{dir: filepath.Join(parent.dir, name), path: filepath.Join(parent.path, name)}
		if os.Mkdir(c.dir, 0o755) != nil {
			continue
		}
		procs, err := os.OpenFile(c.procs(), os.O_WRONLY, 0)
		if err != nil {
			_ = os.Remove(c.dir)
			continue
		}
		check(t, procs.Close())
		t.Cleanup(func() {
			c.kill()
			if !poll(endsWithin, func() bool { return os.Remove(c.dir) == nil }) {
				t.Errorf("%s cannot be removed", c.dir)
			}
		})
		return c
	}
	return nil
}

// ownCgroups are the groups that this process is in and that may have room for
// one more: of version 2 first, then of version 1.
func ownCgroups() []cgroup {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var two, one []cgroup
	for line := range strings.Lines(string(content)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch controllers {
		case "":
			for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
				if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
					two = append(two, cgroup{dir: root + path, path: path})
				}
			}
		case "pids", "freezer":
			one = append(one, cgroup{dir: "/sys/fs/cgroup/" + controllers + path, path: path})
		}
	}
	return append(two, one...)
}

func (c *cgroup) procs() string { return filepath.Join(c.dir, "cgroup.procs") }

// enter gives the command that runs argv in the group, as the same process.
func (c *cgroup) enter(argv []string) []string {
	if c == nil {
		return argv
	}
	return append([]string{"/bin/sh", "-c", `echo 0 > "$0" && exec "$@"`, c.procs()}, argv...)
}

// members are the processes of the group that have not ended.
func (c *cgroup) members() []int {
	content, err := os.ReadFile(c.procs())
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(content)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// zombies are the processes of the group for which one of the group, or this
// test, has not waited. Those that init inherits are init's, and some take
// their time.
func (c *cgroup) zombies() []int {
	parents := append(c.members(), os.Getpid())
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, dir := range dirs {
		p, ok := readProcess(dir)
		if !ok || p.state != 'Z' || !slices.Contains(parents, p.parent) {
			continue
		}
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err == nil && bytes.Contains(groups, []byte(":"+c.path+"\n")) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// kill ends all members.
func (c *cgroup) kill() {
	err := os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
	if !errors.Is(err, os.ErrNotExist) && err == nil {
		return
	}
	for pids := c.members(); len(pids) > 0; pids = c.members() { // version 1
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}
}
