package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ownSystemd runs the command "$@" as the client of a user's systemd that it starts: in the control group
// $CLIENT below that of the test, whose list of processes is $0, with directories of its own in the place of those
// of the machine's systemd.
const ownSystemd = `echo 0 > "$0" && exec unshare -m -C --propagation private sh -c '
set -e
umount -R -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir -p /run/systemd/system /run/units /run/user "/sys/fs/cgroup/$CLIENT" /sys/fs/cgroup/user@0.service $LINGER
echo "[Unit]" > /run/units/default.target
chmod 700 /run/user
(
	echo 0 > /sys/fs/cgroup/user@0.service/cgroup.procs
	HOME=/ XDG_RUNTIME_DIR=/run/user SYSTEMD_UNIT_PATH=/run/units setsid "$0" --user >/run/log 2>&1 &
	echo $! > /run/pid
)
until [ -S /run/user/systemd/private ]; do kill -0 $(cat /run/pid) && sleep 0.1; done
[ -z "$STOPPED" ] || kill -STOP $(cat /run/pid)
echo 0 > "/sys/fs/cgroup/$CLIENT/cgroup.procs"
exec "$@"
' "$@"`

// TestDaemonLeavesGroupOfClient checks that what is kept survives the end of the client's control group
// where a user's systemd can put the daemon into one of its own that does not end earlier, and that the
// answer names the group otherwise, also if systemd hangs.
func TestDaemonLeavesGroupOfClient(t *testing.T) {
	t.Parallel()
	systemd, err := exec.LookPath("/usr/lib/systemd/systemd")
	if _, missing := exec.LookPath("systemd-run"); err != nil || missing != nil || os.Getuid() != 0 {
		t.Skip("needs systemd, and root to start one")
	}
	for _, test := range []struct {
		name, client string
		variables    []string
		leaves       bool
	}{
		{name: "editor", client: "user@0.service/app.slice/editor.service", leaves: true},
		{name: "login", client: "session-1.scope"},
		{name: "lingering", client: "session-1.scope", variables: []string{"LINGER=/var/lib/systemd/linger/root"}, leaves: true},
		{name: "hanging", client: "user@0.service/editor.service", variables: []string{"STOPPED=1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			g := newCgroup(t)
			if g == nil || exec.Command("unshare", "-m", "-C", "true").Run() != nil {
				t.Skip("cannot create a control group and its namespace")
			}
			if _, err := os.Stat(filepath.Join(g.dir, "cgroup.kill")); err != nil {
				t.Skip("the control group is of version 1")
			}
			t.Cleanup(func() { g.removeGroups(t) })
			w.env = append(w.env, test.variables...)
			w.set("CLIENT", test.client)
			w.set("USER", "root")
			w.set("XDG_RUNTIME_DIR", "/run/user")
			s := w.launch(t, "/bin/sh", "-c", ownSystemd, g.procs(), systemd, binary(t))
			s.initialize(t)
			t.Cleanup(func() {
				w.endDaemon(t)
				_, _, err := w.doctor("--cleanup-stale-records") // guardian and server of the client were killed
				check(t, err)
			})
			r := s.must(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"))
			d := w.awaitDaemon(t)
			info := s.must(t, "get_server_info", nil).Text
			group := "control group " + filepath.Base(test.client)
			if names := strings.Contains(r.Text, group); names == test.leaves || strings.Contains(info, group) != names {
				t.Errorf("got %s and %s, want the group of the client named: %v", r.Text, info, !test.leaves)
			}
			client := cgroup{dir: filepath.Join(g.dir, test.client)}
			left := fmt.Sprint(r.num("pid"))
			own, err := os.ReadFile("/proc/" + left + "/cgroup")
			if check(t, err); strings.Contains(string(own), "/pmcp-daemon-") != test.leaves {
				t.Errorf("got the kept process in %s, want it in a group of the daemon: %v", own, test.leaves)
			}
			client.kill()
			s.exit(t)
			if test.leaves && !d.runs() {
				t.Error("the daemon has ended with the client")
			}
			if _, err := os.Stat("/proc/" + left); test.leaves && err != nil {
				t.Errorf("got %v, want the kept process alive", err)
			}
		})
	}
}

// removeGroups kills what is in the control group and removes the groups below it.
func (c *cgroup) removeGroups(t *testing.T) {
	t.Helper()
	c.kill()
	if !poll(endsWithin, func() bool {
		var below []string
		_ = filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && path != c.dir {
				below = append(below, path)
			}
			return nil // a group that is gone needs no removal
		})
		slices.Reverse(below)
		for _, dir := range below {
			_ = os.Remove(dir)
		}
		return len(below) == 0
	}) {
		t.Errorf("there are groups below %s", c.dir)
	}
}
