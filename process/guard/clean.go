package guard

import (
	"os"
	"slices"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// clean kills the processes that the server left, and reports whether all of them ended
// within the limit.
func (g *guardian) clean() bool {
	c := cleaner{
		session:   g.ID,
		server:    g.server,
		inherited: g.inherited,
		adopts:    canAdopt(),
		strayed:   g.leaving.began,
		asked:     map[proctab.ID]bool{},
	}
	grace := time.Now().Add(g.Grace)
	deadline := grace.Add(g.cleanLimit)
	rescan := time.NewTicker(g.rescan)
	defer rescan.Stop()
	for {
		left, done := c.round()
		if done {
			return true
		}
		if time.Now().After(deadline) {
			c.killer.Kill(left) // so that no process remains stopped
			g.report.logf("cannot kill what the server left, its record stays: %s", c.describe(left))
			return false
		}
		if time.Now().Before(grace) {
			c.ask(left)
		} else if c.killer.Pass(left) {
			continue // no pause for processes that multiply
		}
		select {
		case <-g.children:
		case <-rescan.C:
		}
	}
}

// A cleaner finds and kills the processes that a dead server left.
type cleaner struct {
	session   string
	server    proctab.ID
	inherited []proctab.ID
	adopts    bool // whether the kernel re-parents orphans to us
	strayed   bool // whether it may not have done so for a moment: see detach
	killer    proctab.Killer
	asked     map[proctab.ID]bool // processes that have got SIGTERM
	empty     int                 // passes in a row that found nothing
	blind     error               // error of reading the process table in the last pass
}

// round reaps the processes that have ended and returns those that have not. done is true
// when the kernel reports that we have no child: for a subreaper that is proof. Without
// that proof, because the subreaper flag is or was missing or some children are not the
// session's, two passes in a row over the process table must find nothing.
func (c *cleaner) round() (left []proctab.Proc, done bool) {
	childless := reapAll()
	if childless && c.adopts && !c.strayed {
		return nil, true
	}
	table, err := proctab.All()
	c.blind = err
	if err != nil {
		return nil, false // the next round tries again
	}
	left = c.left(table)
	if len(left) > 0 {
		c.empty = 0
		return left, false
	}
	c.empty++
	proofless := !c.adopts || c.strayed || len(c.inherited) > 0
	return nil, proofless && c.empty >= 2
}

// ask sends SIGTERM once to each process whose parent is gone: the others are for their
// parents to end, and when a parent has ended, its children become ours. Where the kernel does
// not re-parent them to us, all get the signal.
func (c *cleaner) ask(left []proctab.Proc) {
	for _, p := range left {
		if p.Zombie || c.asked[p.ID] || c.adopts && p.PPID != os.Getpid() {
			continue
		}
		c.asked[p.ID] = true
		_ = proctab.Signal(p.ID, syscall.SIGTERM) // an error shows in the next pass
		_ = proctab.Signal(p.ID, syscall.SIGCONT) // a stopped process does not see SIGTERM
	}
}

// left returns the processes of the session that table shows.
func (c *cleaner) left(table []proctab.Proc) []proctab.Proc {
	left := proctab.Descendants(table, os.Getpid())
	if !c.adopts || c.strayed {
		left = append(left, c.strays(table)...)
	}
	spared := c.spared(table)
	return slices.DeleteFunc(left, func(p proctab.Proc) bool { return spared[p.PID] })
}

// spared returns the pids below us that do not belong to the session: children that a shell
// passed on to us by `job & exec pmcp`, with their descendants. The server lives in a
// session of its own, and a process can leave a session but not join one, so it started
// no process of our session.
func (c *cleaner) spared(table []proctab.Proc) map[int]bool {
	spared := map[int]bool{os.Getpid(): true}
	if len(c.inherited) == 0 {
		return spared
	}
	own := 0
	for _, p := range table {
		if p.PID == os.Getpid() {
			own = p.SID
		}
	}
	for _, p := range table {
		if p.SID == own && own != 0 {
			spared[p.PID] = true
		}
		if slices.Contains(c.inherited, p.ID) {
			spared[p.PID] = true
			for _, below := range proctab.Descendants(table, p.PID) {
				spared[below.PID] = true
			}
		}
	}
	return spared
}

// strays returns the processes of the session that may have other parents by now. It
// finds them by the server's session id, by their stamp and by the mark in their
// environment. It misses a process without a stamp that has cleared its environment in a
// session of its own.
func (c *cleaner) strays(table []proctab.Proc) []proctab.Proc {
	// The kernel does not reuse the number of a process group or session that has
	// members, so a new leader of that number means that the old one had none.
	reused := slices.ContainsFunc(table, func(p proctab.Proc) bool {
		return p.PID == c.server.PID && p.ID != c.server
	})
	stamp := proctab.SessionStamp(c.session)
	var strays []proctab.Proc
	for _, p := range table {
		if p.Zombie {
			continue // launchd or init reaps it
		}
		marks, _ := proctab.Getenvs(p.PID, proctab.EnvSession)
		if marks[0] == c.session || p.SID == c.server.PID && !reused || proctab.StampOf(p.PID).Session() == stamp {
			strays = append(strays, p)
		}
	}
	return strays
}

func (c *cleaner) describe(left []proctab.Proc) string {
	if c.blind != nil {
		return c.blind.Error()
	}
	return proctab.Describe(left)
}

// reapAll reaps every child that has ended, and reports whether no child is left.
func reapAll() (childless bool) {
	for {
		if pid, err := wait(nil); err != nil || pid == 0 {
			return err != nil
		}
	}
}

// inheritedChildren returns the children that this process had before it started any.
// Usually there are none, and then it costs one system call.
func inheritedChildren() []proctab.ID {
	if reapAll() {
		return nil
	}
	table, err := proctab.All()
	if err != nil {
		return nil
	}
	var children []proctab.ID
	for _, p := range table {
		if p.PPID == os.Getpid() {
			children = append(children, p.ID)
		}
	}
	return children
}
