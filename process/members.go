package process

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/prose"
	"pmcp/process/sockets"
)

// maxAncestors bounds how many ancestors of the holder of a port are named.
const maxAncestors = 64

// maxCommandLine bounds Member.Command, in bytes.
const maxCommandLine = 512

// Member is one living process below the server.
type Member struct {
	// PID and PPID are the ids of the process and of its parent.
	PID, PPID int
	// Command is the command line of the process in the form of proctab.Printable,
	// at most 512 bytes.
	Command string
	// CPUPercent is the share of the whole machine that the process used between
	// the last two samples. MemoryBytes is its resident memory, shared pages
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
	procs := m.deps.tree.shown(st.RunID)
	if slices.ContainsFunc(procs, func(p proctab.Proc) bool { return p.Zombie }) {
		procs = nil // none lives for long enough to be seen
	}
	return m.newMembers(procs)
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
	if _, ok := m.deps.tree.glance(0); ok {
		return nil
	}
	strays, _ := m.newMembers(m.deps.tree.scanSince(time.Now()).strays)
	return strays
}

// newMembers returns procs as Members. It reads the command line, usage and ports
// of each process.
func (m *Manager) newMembers(procs []proctab.Proc) ([]Member, error) {
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
			CPUPercent: m.meter.cpuPercent(p.ID), MemoryBytes: memory(p), Ports: sockets.Ports(own),
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

// PortHolder returns the process that listens on a TCP port. It returns pid 0 and
// no command if no process does, and pid 0 and a description if the process
// belongs to another user and cannot be seen. ours reports that the process
// belongs to this session.
func (m *Manager) PortHolder(port int) (pid int, command string, ours bool) {
	listeners, err := sockets.Listening()
	if err != nil {
		return 0, "", false
	}
	listeners = slices.DeleteFunc(listeners, func(s sockets.Socket) bool { return s.Port() != port })
	if len(listeners) == 0 {
		return 0, "", false
	}
	m.deps.tree.scanSince(time.Now()) // so that new processes are known as ours
	table, err := proctab.All()
	if err != nil {
		return 0, "", false
	}
	byPID := make(map[int]proctab.Proc, len(table))
	for _, p := range table {
		byPID[p.PID] = p
	}
	sockets.AddHolders(listeners, table)
	for _, s := range listeners {
		if len(s.Holders) > 0 {
			// Return the oldest holder. The others inherited the socket from it:
			// workers, or children that are about to execute another program.
			pid := slices.MinFunc(s.Holders, func(a, b int) int { return cmp.Compare(byPID[a].ID.Start, byPID[b].ID.Start) })
			return pid, displayName(byPID[pid]), m.deps.tree.contains(byPID[pid].ID)
		}
	}
	return 0, "a process of another user", false
}

// A holder is the process that listens on a port. Its zero value is none.
type holder struct {
	pid   int    // 0 if it cannot be seen
	text  string // "pid 12 (node) of web in this session"
	ours  bool   // it belongs to this session
	entry string // the entry whose tree it belongs to; "" if that is not known
}

// holder returns the process that listens on port.
func (m *Manager) holder(port int) holder {
	pid, command, ours := m.PortHolder(port)
	switch {
	case pid == 0:
		return holder{text: command}
	case !ours:
		return holder{pid: pid, text: fmt.Sprintf("pid %d (%s), which was started elsewhere", pid, shorten(command))}
	}
	entry := m.nameOf(pid)
	return holder{pid, fmt.Sprintf("pid %d (%s) of %s in this session", pid, shorten(command), cmp.Or(entry, "another process")), true, entry}
}

// TakenPort returns which process holds a TCP port, and which port is free: "port 3000
// is held by pid 12 (node) of web in this session; port 3001 is free". It returns "" if
// no process listens on port, or one of the tree of the entry called except does. pids
// are a holder that is not of this session and its ancestors, nearest first.
func (m *Manager) TakenPort(port int, except string) (text string, pids []int) {
	text, pids = m.HeldPort(port, except)
	if text == "" {
		return "", nil
	}
	listeners, err := sockets.Listening()
	if err != nil {
		return text, pids
	}
	used := sockets.Ports(listeners)
	for free := port + 1; free <= 65535; free++ {
		if !slices.Contains(used, free) {
			return fmt.Sprintf("%s; port %d is free", text, free), pids
		}
	}
	return text, pids
}

// HeldPort is TakenPort without a port that is free.
func (m *Manager) HeldPort(port int, except string) (text string, pids []int) {
	held := m.holder(port)
	if held.text == "" || except != "" && held.entry == except {
		return "", nil
	}
	for pid := held.pid; !held.ours && pid > 1 && len(pids) < maxAncestors; {
		pids = append(pids, pid)
		p, err := proctab.Read(pid)
		if err != nil {
			break
		}
		pid = p.PPID
	}
	return heldSentence(port, held.text), pids
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
	// word. A path is no secret, and its beginning is useful.
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
