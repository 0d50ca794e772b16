package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// oomWatch tells whether the kernel's out-of-memory killer has been at work.
// The kernel names no victim to us, but it counts them per memory group and
// for the machine; a SIGKILL that nobody here sent, with a count that has just
// gone up, is taken for its work.
type oomWatch struct {
	files []string // each holds a line "oom_kill N"

	mu sync.Mutex
	// accounted is how many kills have been laid to a run, or happened before
	// the last note but one; noted is the count at the last note.
	accounted, noted uint64
}

// newOOMWatch finds the counters of this process's memory group, in which its
// children are too: memory.events of cgroup v2, memory.oom_control of v1. The
// machine's own count is for where there is neither.
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
	w.note()
	w.note()
	return w
}

// use adds the counter of a group. In a container the group is mounted as the
// root, whatever its path is called outside.
func (w *oomWatch) use(root, group, name string) {
	for _, file := range []string{filepath.Join(root, group, name), filepath.Join(root, name)} {
		if _, ok := oomKills(file); ok {
			w.files = append(w.files, file)
			return
		}
	}
}

// note lets kills before the last note be forgotten. To be called now and then,
// such that a killed child is waited for within two calls.
func (w *oomWatch) note() {
	sum := w.count()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accounted, w.noted = max(w.accounted, w.noted), sum
}

// struck says whether the killer took a process that no earlier call laid to
// its account, and lays it there.
func (w *oomWatch) struck() bool {
	sum := w.count()
	w.mu.Lock()
	defer w.mu.Unlock()
	if sum <= w.accounted {
		return false
	}
	w.accounted++
	return true
}

func (w *oomWatch) count() (sum uint64) {
	for _, file := range w.files {
		n, _ := oomKills(file)
		sum += n
	}
	return sum
}

// oomKills reads the line "oom_kill N" of file.
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
