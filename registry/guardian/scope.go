package guardian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"pmcp/process/guard"
	"pmcp/registry"
)

// scopeLimit is how long the user's systemd has to make a group, which takes it 20 ms.
var scopeLimit = guard.Limit(time.Second)

// scoped is the argument of guard.DetachVerb in the control group of the daemon.
const scoped = "scoped"

// inScope has the user's systemd put a second process like this one into a control group of its own,
// where that process starts the daemon, and reports whether it has done so. The end of the client's
// group does not end such a daemon. The environment, but for XDG_RUNTIME_DIR, the limits and the parent of
// the daemon are the same either way, and systemd sees none of them. Until systemd has answered, the guardian is not a
// subreaper: what a session leaves in that time is found by its marks.
func inScope() bool {
	dir := registry.RuntimeDir(os.Getenv)
	if !answers(dir) || !outlives() {
		return false
	}
	program, err := os.Executable()
	if _, gone := os.Stat(program); err != nil || gone != nil {
		program = fmt.Sprintf("/proc/%d/exe", os.Getpid())
	}
	ctx, cancel := context.WithTimeout(context.Background(), scopeLimit)
	defer cancel()
	// Delegated: systemd does not end the group when the kernel ends one process for want of memory.
	cmd := exec.CommandContext(ctx, "systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes",
		"--unit="+registry.DaemonScope+registry.NewID(dir), "--description=pmcp daemon", program, guard.DetachVerb, scoped)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	return cmd.Run() == nil
}

// answers reports whether there is a user's systemd with that runtime directory.
func answers(dir string) bool {
	for _, name := range []string{"systemd/private", "bus"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if dir != "" && err == nil && info.Mode()&os.ModeSocket != 0 {
			return true
		}
	}
	return false
}

// outlives reports whether what the user's systemd runs ends no earlier than the control group of this
// process. That is so if the group is of that systemd, or if the user lingers: otherwise systemd ends with the
// last session of the user, while the login manager may spare the group of a session.
func outlives() bool {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err == nil && strings.Contains(string(groups), fmt.Sprintf("/user@%d.service/", os.Getuid())) {
		return true
	}
	user := os.Getenv("USER")
	_, err = os.Stat(filepath.Join("/var/lib/systemd/linger", user))
	return user != "" && err == nil
}
