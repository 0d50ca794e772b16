package process

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/prose"
	"pmcp/process/sockets"
)

const (
	// maxAncestors bounds how many ancestors of the holder of a port are named.
	maxAncestors = 64
	// maxHolderDir bounds the directory of a holder in a sentence, in bytes.
	maxHolderDir = 200
)

// A holder is the process that listens on a port. Its zero value is none.
type holder struct {
	pid   int    // 0 if it cannot be seen
	text  string // "pid 12 (node) of web in this session"
	ours  bool   // it belongs to this session
	entry string // the entry whose tree it belongs to; "" if that is not known
	// line are the process and its ancestors, nearest first; nil if it is ours.
	line []int
}

// holder returns the process that listens on port. Its text compares the process with
// seeker, the definition of a process that needs the port.
func (m *Manager) holder(port int, seeker Spec) holder {
	p, seen := m.listener(port)
	if !seen {
		return holder{}
	}
	return m.holderOf(p, seeker)
}

// holderOf is holder for a process that may hold any socket; see listener.
func (m *Manager) holderOf(p proctab.Proc, seeker Spec) holder {
	if p.PID == 0 {
		return holder{text: "a process of another user"}
	}
	h := holder{pid: p.PID, ours: m.deps.tree.contains(p.ID), text: fmt.Sprintf("pid %d (%s)", p.PID, shorten(displayName(p)))}
	dir := workingDir(p.PID)
	where := " in " + prose.Cut(proctab.Printable(dir), maxHolderDir)
	here := dir != "" && isDir(dir, seeker.Dir)
	switch {
	case dir == "":
		where = ""
	case here:
		where = " in the same directory"
	}
	if h.ours {
		h.entry = m.nameOf(p.PID)
		if here {
			where = ""
		}
		h.text += fmt.Sprintf(" of %s in this session", cmp.Or(h.entry, "another process")) + where
		return h
	}
	h.line = ancestry(p)
	h.text += where + ", started elsewhere" + since(p.ID.StartedAt())
	if here && slices.ContainsFunc(h.line, func(pid int) bool { return seeker.isRunBy(pid, dir) }) {
		h.text += " (a stale copy of this program"
		if session, _ := proctab.Getenvs(p.PID, proctab.EnvSession); session[0] == "" { // else its own session stops it
			h.text += fmt.Sprintf(": kill %d", p.PID)
		}
		h.text += ")"
	}
	return h
}

// listener returns the process that listens on a TCP port. It reports false if no process
// does, and returns the zero Proc if the process belongs to another user and cannot be
// seen.
func (m *Manager) listener(port int) (proctab.Proc, bool) {
	listeners, err := sockets.Listening()
	if err != nil {
		return proctab.Proc{}, false
	}
	listeners = slices.DeleteFunc(listeners, func(s sockets.Socket) bool { return s.Port() != port })
	if len(listeners) == 0 {
		return proctab.Proc{}, false
	}
	m.deps.tree.scanSince(time.Now()) // so that new processes are known as ours
	table, err := proctab.All()
	if err != nil {
		return proctab.Proc{}, false
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
			return byPID[pid], true
		}
	}
	return proctab.Proc{}, true
}

// KeptPort returns what keeps a TCP port on which no process listens, for the entry called name: the
// connections that an earlier server has left, or a client's that happens to have that port. It returns "" if
// there are none.
func (m *Manager) KeptPort(port int, name string) string {
	found, err := sockets.Connections(port)
	if err != nil || len(found) == 0 {
		return ""
	}
	text := fmt.Sprintf("no process listens on port %d now, but ", port)
	open := slices.DeleteFunc(slices.Clone(found), func(c sockets.Connection) bool { return c.Key == 0 })
	if len(open) > 0 {
		table, _ := proctab.All()
		ends := []sockets.Socket{open[0].Socket}
		sockets.AddHolders(ends, table)
		var p proctab.Proc
		if len(ends[0].Holders) > 0 {
			p, _ = proctab.Read(ends[0].Holders[0])
		}
		st, _ := m.Status(name)
		return text + fmt.Sprintf("%s has a connection on it (%s)", m.holderOf(p, st.Spec).text, open[0].State)
	}
	last := slices.MaxFunc(found, func(a, b sockets.Connection) int { return cmp.Compare(a.Left, b.Left) })
	text += fmt.Sprintf("a closed connection keeps it in %s", last.State)
	if last.Left > 0 {
		text += fmt.Sprintf(" for another %d s", (last.Left+time.Second-1)/time.Second)
	}
	return text + "; a program that sets SO_REUSEADDR need not wait"
}

// ancestry returns the pids of p and its ancestors, nearest first, without the first
// process of the machine.
func ancestry(p proctab.Proc) (pids []int) {
	for p.PID > 1 && len(pids) < maxAncestors {
		pids = append(pids, p.PID)
		parent, err := proctab.Read(p.PPID)
		if err != nil {
			break
		}
		p = parent
	}
	return pids
}

// isRunBy reports whether the process pid runs the command of s in dir, as far as its
// command line shows: an interpreter may stand before the script that is the command.
func (s Spec) isRunBy(pid int, dir string) bool {
	line, own := commandLine(pid), strings.Join(append([]string{filepath.Base(s.Command)}, s.Args...), " ")
	return (line == own || strings.HasSuffix(line, "/"+own) || strings.HasSuffix(line, " "+own)) && workingDir(pid) == dir
}

// isDir reports whether path names dir, a path without symbolic links.
func isDir(dir, path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err == nil && real == dir
}

// since returns " at 15:04", with the day unless that is today, or "" for the zero time.
func since(at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case at.Format(time.DateOnly) == time.Now().Format(time.DateOnly):
		return at.Format(" at 15:04")
	}
	return at.Format(" on 2006-01-02 at 15:04")
}

func heldSentence(port int, holder string) string {
	return fmt.Sprintf("port %d is held by %s", port, cmp.Or(holder, "a process that has just ended"))
}

// TakenPort returns which process holds a TCP port, and which port is free: "port 3000
// is held by pid 12 (node) of web in this session; port 3001 is free". It compares the
// holder with the entry called name, which need not exist. It returns "" if no process
// listens on port, or, unless own is set, one of the tree of name. pids are a holder that
// is not of this session and its ancestors, nearest first.
func (m *Manager) TakenPort(port int, name string, own bool) (text string, pids []int) {
	text, pids = m.HeldPort(port, name, own)
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
func (m *Manager) HeldPort(port int, name string, own bool) (text string, pids []int) {
	var seeker Spec
	if st, err := m.Status(name); err == nil {
		seeker = st.Spec
	}
	held := m.holder(port, seeker)
	if held.text == "" || !own && held.entry != "" && held.entry == name {
		return "", nil
	}
	return heldSentence(port, held.text), held.line
}
