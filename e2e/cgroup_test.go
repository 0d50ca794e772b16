package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A cgroup is a control group of a test. It finds every process that a session left: a
// process cannot leave the group by creating a session or a process group of its own or by
// clearing its environment, and pmcp itself does not use the group.
type cgroup struct {
	dir  string
	path string // as in /proc/PID/cgroup
}

// newCgroup creates a cgroup and removes it at the end of the test. It returns nil if
// creating one is not permitted.
func newCgroup(t testing.TB) *cgroup {
	t.Helper()
	return cgroupWith(t, func(c *cgroup) error {
		procs, err := os.OpenFile(c.procs(), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return procs.Close()
	})
}

// newLimitedCgroup is like newCgroup, but the group holds at most limit processes and
// threads.
func newLimitedCgroup(t testing.TB, limit int) *cgroup {
	t.Helper()
	return cgroupWith(t, func(c *cgroup) error { return c.limit(limit) })
}

// cgroupWith creates a cgroup for which prepare returns no error.
func cgroupWith(t testing.TB, prepare func(*cgroup) error) *cgroup {
	t.Helper()
	name := "pmcp" + strings.ReplaceAll(t.TempDir(), "/", "-")
	for _, parent := range ownCgroups() {
		c := &cgroup{dir: filepath.Join(parent.dir, name), path: filepath.Join(parent.path, name)}
		if os.Mkdir(c.dir, 0o755) != nil {
			continue
		}
		if prepare(c) != nil {
			_ = os.Remove(c.dir)
			continue
		}
		t.Cleanup(func() {
			c.kill()
			if !poll(endsWithin, func() bool { return os.Remove(c.dir) == nil }) {
				t.Errorf("cannot remove %s", c.dir)
			}
		})
		return c
	}
	return nil
}

// ownCgroups returns the control groups of this process in which the test may create
// another group: groups of cgroup version 2 first, then groups of version 1.
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

// enter returns the command that enters the control group and then executes argv as the
// same process.
func (c *cgroup) enter(argv []string) []string {
	if c == nil {
		return argv
	}
	return append([]string{"/bin/sh", "-c", `echo 0 > "$0" && exec "$@"`, c.procs()}, argv...)
}

// members returns the processes of the control group that have not ended.
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

// zombies returns the zombies of the control group whose parent is in the group or is this
// test. Zombies that init has inherited are left out, because some inits take a while to
// reap.
func (c *cgroup) zombies() []int {
	parents := append(c.members(), os.Getpid())
	var pids []int
	for _, p := range machine.scan() {
		if p.state != 'Z' || !slices.Contains(parents, p.parent) {
			continue
		}
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
		if err == nil && bytes.Contains(groups, []byte(":"+c.path+"\n")) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// limit bounds the number of processes and threads of the control group.
func (c *cgroup) limit(most int) error {
	return os.WriteFile(filepath.Join(c.dir, "pids.max"), []byte(strconv.Itoa(most)), 0)
}

// kill kills all processes of the control group.
func (c *cgroup) kill() {
	_ = c.limit(0) // stops the processes from forking, if the group has such a limit
	err := os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
	if !errors.Is(err, os.ErrNotExist) && err == nil {
		return
	}
	for pids := c.members(); len(pids) > 0; pids = c.members() { // version 1 has no cgroup.kill
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}
}
