package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// oomWatch detects kills by the kernel's out-of-memory killer. The kernel does not
// name the victim, but it counts the kills per memory group and for the machine.
// So a SIGKILL that pmcp did not send, together with a count that has just risen,
// is attributed to the killer.
type oomWatch struct {
	files []string // each holds a line "oom_kill N"

	mu sync.Mutex // guards the fields below
	// claimed is how many kills have been attributed to a run, or happened before
	// the second-to-last advance. lastCount is the count at the last advance.
	claimed, lastCount uint64
}

// newOOMWatch finds the counters of the memory group of this process, which its
// children share: memory.events of cgroup v2, memory.oom_control of v1. Where
// neither file exists, it uses the count of the whole machine.
func newOOMWatch() *oomWatch {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return &oomWatch{}
	}
	w := &oomWatch{}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) != 3 {
			continue
		}
		switch controllers, path := fields[1], fields[2]; {
		case controllers == "":
			w.use("/sys/fs/cgroup", path, "memory.events")
		case strings.Contains(controllers, "memory"):
			w.use("/sys/fs/cgroup/memory", path, "memory.oom_control")
		}
	}
	if len(w.files) == 0 {
		w.files = []string{"/proc/vmstat"}
	}
	w.advance()
	w.advance()
	return w
}

// use adds the counter of a memory group. In a container the group is mounted as
// the root, whatever path it has outside.
func (w *oomWatch) use(root, group, name string) {
	for _, file := range []string{filepath.Join(root, group, name), filepath.Join(root, name)} {
		if _, ok := oomKills(file); ok {
			w.files = append(w.files, file)
			return
		}
	}
}

// advance discards kills that happened before the last advance. Call it
// periodically, at intervals so long that a killed child is reaped before the
// second advance after the kill.
func (w *oomWatch) advance() {
	sum := w.count()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claimed, w.lastCount = max(w.claimed, w.lastCount), sum
}

// claimKill reports whether the killer ended a process that no earlier call
// claimed, and claims that kill.
func (w *oomWatch) claimKill() bool {
	sum := w.count()
	w.mu.Lock()
	defer w.mu.Unlock()
	if sum <= w.claimed {
		return false
	}
	w.claimed++
	return true
}

func (w *oomWatch) count() (sum uint64) {
	for _, file := range w.files {
		n, _ := oomKills(file)
		sum += n
	}
	return sum
}

// oomKills returns N from the line "oom_kill N" of file.
func oomKills(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if number, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
