package process

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"pmcp/process/proctab"
)

// maxCommandLine bounds Member.Command, in bytes.
const maxCommandLine = 512

// Member is one living process below the server.
type Member struct {
	// PID and PPID are its id and its parent's.
	PID, PPID int
	// Command is its command line, at most 512 bytes of it, as
	// proctab.Printable gives it.
	Command string
	// CPUPercent is the share of the whole machine it used between the last two
	// samples, MemoryBytes what it holds: resident, shared pages included.
	CPUPercent  float64
	MemoryBytes uint64
	// Ports are the TCP ports that it listens on, ascending.
	Ports []int
}

// Tree returns the living processes of the current or last run of name,
// parents before their children. Its error wraps ErrUnknown.
func (m *Manager) Tree(name string) ([]Member, error) {
	st, err := m.Status(name)
	if err != nil {
		return nil, err
	}
	return m.describeMembers(m.deps.tree.members(st.RunID))
}

// Strays returns the living processes below the server that belong to no run.
// They are killed when the session ends.
func (m *Manager) Strays() []Member {
	strays, _ := m.describeMembers(m.deps.tree.look(time.Now()).strays)
	return strays
}

// describeMembers adds to procs what costs a look at each.
func (m *Manager) describeMembers(procs []proctab.Proc) ([]Member, error) {
	if len(procs) == 0 {
		return nil, nil
	}
	sockets, err := listening()
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(procs))
	for _, p := range procs {
		pids = append(pids, p.PID)
	}
	addHolders(sockets, pids)
	members := make([]Member, 0, len(procs))
	for _, p := range procs {
		own := slices.DeleteFunc(slices.Clone(sockets), func(s socket) bool { return !slices.Contains(s.holders, p.PID) })
		members = append(members, Member{
			PID: p.PID, PPID: p.PPID, Command: displayName(p),
			CPUPercent: m.meter.of(p.ID).CPUPercent, MemoryBytes: memory(p.PID), Ports: portsOf(own),
		})
	}
	return members, nil
}

// displayName is the command line of p, or its short name if that is unknown.
func displayName(p proctab.Proc) string {
	line := commandLine(p.PID)
	if line == "" {
		return p.Comm
	}
	// Bounded before it is looked at: it can be of megabytes.
	return firstBytes(proctab.Printable(line[:min(len(line), 2*maxCommandLine)]), maxCommandLine)
}

// firstBytes is the first n bytes of s at most, whole characters of valid UTF-8.
func firstBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// PortHolder returns who listens on a TCP port: pid 0 and no command if nobody
// does; pid 0 and a command that says so if somebody does who cannot be seen,
// another user's process. ours says that it is one of this session's.
func (m *Manager) PortHolder(port int) (pid int, command string, ours bool) {
	sockets, err := listening()
	if err != nil {
		return 0, "", false
	}
	sockets = slices.DeleteFunc(sockets, func(s socket) bool { return s.port() != port })
	if len(sockets) == 0 {
		return 0, "", false
	}
	m.deps.tree.look(time.Now()) // so that the youngest are known as ours
	table, err := proctab.All()
	if err != nil {
		return 0, "", false
	}
	byPID := make(map[int]proctab.Proc, len(table))
	pids := make([]int, 0, len(table))
	for _, p := range table {
		byPID[p.PID] = p
		pids = append(pids, p.PID)
	}
	addHolders(sockets, pids)
	for _, s := range sockets {
		if len(s.holders) > 0 {
			// The oldest: others have it from that one, workers or what is just about
			// to become another program.
			pid := slices.MinFunc(s.holders, func(a, b int) int { return cmp.Compare(byPID[a].ID.Start, byPID[b].ID.Start) })
			return pid, displayName(byPID[pid]), m.deps.tree.has(byPID[pid].ID)
		}
	}
	return 0, "a process of another user", false
}

const (
	// inThisSession ends what holder says of a process of ours, unnamed of one that
	// is in no tree.
	inThisSession = " in this session"
	unnamed       = "another process" + inThisSession
)

// holder names who listens on port: "pid 12 (node)" and whether it is ours, or
// "" if nobody does.
func (m *Manager) holder(port int) string {
	pid, command, ours := m.PortHolder(port)
	switch {
	case command == "":
		return ""
	case pid == 0:
		return command
	case ours:
		of := unnamed
		if name := m.nameOf(pid); name != "" {
			of = name + inThisSession
		}
		return fmt.Sprintf("pid %d (%s) of %s", pid, shorten(command), of)
	default:
		return fmt.Sprintf("pid %d (%s), which was started elsewhere", pid, shorten(command))
	}
}

// nameOf is the name of the process whose tree had pid at the last scan; "" if
// there is none.
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

// shorten cuts a command line to what a sentence bears.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	// What is left of a secret that is cut through would not be masked; a file is
	// none, and known by its beginning, too.
	if i := strings.LastIndexByte(s[:most+1], ' '); i > 0 && !strings.HasPrefix(s[i+1:], "/") {
		return s[:i] + " …"
	}
	return firstBytes(s, most) + "…"
}
