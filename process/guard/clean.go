package guard

import (
	"os"
	"slices"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// clean kills what the server left until nothing is left, and says whether it
// came to that within the limit.
func (g *guardian) clean() bool {
	c := cleaner{
		session:   g.ID,
		server:    g.server,
		inherited: g.inherited,
		adopts:    canAdopt(),
		signalled: map[proctab.ID]bool{},
	}
	deadline := time.Now().Add(g.giveUp)
	rescan := time.NewTicker(g.rescan)
	defer rescan.Stop()
	for {
		left, done := c.round()
		if done {
			return true
		}
		if time.Now().After(deadline) {
			g.report.logf("cannot kill what the server left, its record stays: %s", describe(left))
			return false
		}
		if c.kill(left) {
			continue // what multiplies is given no pause
		}
		select {
		case <-g.children:
		case <-rescan.C:
		}
	}
}

// cleaner finds and kills what a dead server left.
type cleaner struct {
	session   string
	server    proctab.ID
	inherited []proctab.ID
	adopts    bool // orphans are re-parented to us
	signalled map[proctab.ID]bool
	empty     int // passes in a row that found nothing
}

// round takes the status of what has ended and returns what has not. It is done
// when the kernel says that we have no child: for a subreaper that is proof.
// Where there is no such proof, without the flag or with children that are not
// the session's, two passes over the process table must find nothing.
func (c *cleaner) round() (left []proctab.Proc, done bool) {
	childless := reapAll()
	if childless && c.adopts {
		return nil, true
	}
	table, err := proctab.All()
	if err != nil {
		return nil, false // tried again until the limit
	}
	left = c.left(table)
	if len(left) > 0 {
		c.empty = 0
		return left, false
	}
	c.empty++
	proofless := !c.adopts || len(c.inherited) > 0
	return nil, proofless && c.empty >= 2
}

// left returns the processes of the session that table shows.
func (c *cleaner) left(table []proctab.Proc) []proctab.Proc {
	left := proctab.Descendants(table, os.Getpid())
	if !c.adopts {
		left = append(left, c.strays(table)...)
	}
	spared := c.spared(table)
	return slices.DeleteFunc(left, func(p proctab.Proc) bool { return spared[p.PID] })
}

// spared are the processes that are not the session's although they are below
// us: what a shell left to us by `job & exec pmcp`, with all below that. The
// server lives in a session of its own, and a session can be left but not
// joined, so nothing that shares ours was started by it.
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

// strays finds processes of the session that may have other parents by now: by
// the server's session, and by the mark in their environment. What cleared its
// environment in a session of its own is not found.
func (c *cleaner) strays(table []proctab.Proc) []proctab.Proc {
	// A process group or session keeps its number from being reused while it
	// has members; a new leader of that number means that it had none.
	reused := slices.ContainsFunc(table, func(p proctab.Proc) bool {
		return p.PID == c.server.PID && p.ID != c.server
	})
	var strays []proctab.Proc
	for _, p := range table {
		if p.Zombie {
			continue // launchd or init takes it
		}
		mark, _ := proctab.Getenv(p.PID, SessionEnv)
		if mark == c.session || p.SID == c.server.PID && !reused {
			strays = append(strays, p)
		}
	}
	return strays
}

// kill sends SIGKILL to procs and says whether one of them is new.
func (c *cleaner) kill(procs []proctab.Proc) (fresh bool) {
	for _, p := range procs {
		if !p.Zombie && proctab.Signal(p.ID, syscall.SIGKILL) == nil && !c.signalled[p.ID] {
			c.signalled[p.ID] = true
			fresh = true
		}
	}
	return fresh
}

// reapAll takes the status of every child that has ended and says whether there
// is no child any more.
func reapAll() (childless bool) {
	for {
		if pid, err := wait(nil); err != nil || pid == 0 {
			return err != nil
		}
	}
}

// childrenSoFar returns the children of this process, which has started none
// yet: usually none, and then it costs one system call.
func childrenSoFar() []proctab.ID {
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
