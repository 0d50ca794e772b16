package process

import (
	"slices"
	"strings"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/prose"
	"pmcp/process/sockets"
)

// maxCommandLine bounds Member.Command, in bytes.
const maxCommandLine = 512

// Member is one living process below the server.
type Member struct {
	// PID and PPID are the ids of the process and of its parent.
	PID, PPID int
	// Command is the command line of the process in the form of proctab.Printable,
	// at most 512 bytes.
	Command string
	// CPUPercent is the processor time that the process used between the last two
	// samples, in percent of one core. MemoryBytes is its resident memory, shared pages
	// included.
	CPUPercent  float64
	MemoryBytes uint64
	// Ports are the TCP ports that the process listens on, in ascending order.
	Ports []int
}

// Tree returns the living processes of the current or last run of name, parents
// before their children. Its error wraps ErrUnknown.
func (m *Manager) Tree(name string) ([]Member, error) {
	st, err := m.Status(name)
	if err != nil {
		return nil, err
	}
	return newMembers(m.living(st.RunID), m.cpuPercent)
}

func (m *Manager) living(run int64) []proctab.Proc {
	procs := m.deps.tree.shown(run)
	if slices.ContainsFunc(procs, func(p proctab.Proc) bool { return p.Zombie }) {
		return nil // none lives for long enough to be seen
	}
	return procs
}

// Ports returns the TCP ports on which the tree of the current or last run of name
// listens, in ascending order. It returns none if they cannot be read.
func (m *Manager) Ports(name string) []int {
	st, err := m.Status(name)
	if err != nil {
		return nil
	}
	listening, err := sockets.Listening()
	if err != nil {
		return nil
	}
	if ports, known := m.meter.portsOf(st.RunID, listening); known {
		return ports
	}
	sockets.AddHolders(listening, m.deps.tree.shown(st.RunID))
	return sockets.Ports(slices.DeleteFunc(listening, func(s sockets.Socket) bool { return len(s.Holders) == 0 }))
}

// Strays returns the living processes below the server that belong to no run. The
// end of the session kills them.
func (m *Manager) Strays() []Member {
	if _, ok := m.deps.tree.recheck(0); ok {
		return nil
	}
	strays, _ := newMembers(m.deps.tree.scanSince(time.Now()).strays, m.cpuPercent)
	return strays
}

func (m *Manager) cpuPercent(p proctab.Proc) float64 { return m.meter.cpuPercent(p.ID) }

// newMembers returns procs as Members. It reads the command line, usage and ports
// of each process.
func newMembers(procs []proctab.Proc, cpu func(proctab.Proc) float64) ([]Member, error) {
	if len(procs) == 0 {
		return nil, nil
	}
	listeners, err := sockets.Listening()
	if err != nil {
		return nil, err
	}
	sockets.AddHolders(listeners, procs)
	members := make([]Member, 0, len(procs))
	for _, p := range procs {
		own := slices.DeleteFunc(slices.Clone(listeners), func(s sockets.Socket) bool { return !slices.Contains(s.Holders, p.PID) })
		members = append(members, Member{
			PID: p.PID, PPID: p.PPID, Command: displayName(p),
			CPUPercent: cpu(p), MemoryBytes: memory(p), Ports: sockets.Ports(own),
		})
	}
	return members, nil
}

// displayName returns the command line of p, or its short name if that cannot be
// read.
func displayName(p proctab.Proc) string {
	line := commandLine(p.PID)
	if line == "" {
		return p.Comm
	}
	// Cut the command line before cleaning it: it can have megabytes.
	return prose.Head(proctab.Printable(line[:min(len(line), 2*maxCommandLine)]), maxCommandLine)
}

// nameOf returns the name of the process whose tree contained pid at the last
// scan, or "".
func (m *Manager) nameOf(pid int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, e := range m.entries {
		members := m.deps.tree.lastMembers(e.status.RunID)
		if slices.ContainsFunc(members, func(p proctab.Proc) bool { return p.PID == pid }) {
			return name
		}
	}
	return ""
}

// shorten cuts a command line to fit into a sentence.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	// A secret that is cut in the middle would not be masked, so cut before the
	// word. A path is not a secret, and its beginning is useful.
	i := strings.LastIndexByte(s[:most+1], ' ')
	if i <= 0 || i < most-1 && s[i+1] == '/' {
		return prose.Cut(s, most)
	}
	words := strings.Fields(s[:i])
	for len(words) > 1 && strings.HasPrefix(words[len(words)-1], "-") { // an option without its value misleads
		words = words[:len(words)-1]
	}
	return strings.Join(words, " ") + " …"
}
