package daemon

import (
	"os"
	"path"
	"strings"

	"pmcp/registry"
)

// controlGroup returns the name of this process's control group if a login or a service manager
// may end all that is in it: a scope or a service. It returns "" for the group of a user's own
// manager, for a daemon's own, and where there are no such groups.
func controlGroup() string {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if group, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			name := path.Base(group)
			if strings.HasPrefix(name, registry.DaemonScope) {
				return ""
			}
			if strings.HasSuffix(name, ".scope") || strings.HasSuffix(name, ".service") {
				return name
			}
		}
	}
	return ""
}

// initialPIDNamespace is the name of the machine's own pid namespace: the kernel's PROC_PID_INIT_INO.
const initialPIDNamespace = "pid:[4026531836]"

// inContainer reports whether this process is in a pid namespace that ends with its first process.
func inContainer() bool {
	namespace, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && namespace != initialPIDNamespace
}
