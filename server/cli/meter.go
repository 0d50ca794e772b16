package cli

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/sockets"
	"pmcp/server/project"
)

// A usage is what a process tree uses.
type usage struct {
	cpu    float64 // percent of the machine since the measurement before; 0 in the first
	memory uint64  // bytes, resident; shared pages count once per process
}

// A tree is what is known of the process tree of a live run.
type tree struct {
	usage
	ports []int
}

// A meter measures the trees of runs, whichever server runs them.
type meter struct {
	at    time.Time
	ticks map[proctab.ID]uint64 // processor time of each process in the measurement before
}

func newMeter() *meter { return &meter{ticks: make(map[proctab.ID]uint64)} }

// trees returns the trees of the live runs, keyed by pid. It returns none if the machine
// does not show its processes.
func (m *meter) trees(runs []project.Run, now time.Time) map[int]tree {
	table, err := proctab.All()
	if err != nil {
		return nil
	}
	listening, _ := sockets.Listening() // without them no ports are shown
	trees, ticks := make(map[int]tree), make(map[proctab.ID]uint64)
	elapsed := now.Sub(m.at).Seconds()
	for i := range runs {
		pid := runs[i].PID
		if pid == 0 {
			continue
		}
		procs := proctab.Descendants(table, pid)
		if i := slices.IndexFunc(table, func(p proctab.Proc) bool { return p.PID == pid }); i >= 0 {
			procs = append(procs, table[i])
		}
		var t tree
		for _, p := range procs {
			ticks[p.ID] = p.CPU
			if before, ok := m.ticks[p.ID]; ok && elapsed > 0 {
				t.cpu += float64(p.CPU-before) / proctab.TicksPerSecond / elapsed / float64(runtime.NumCPU()) * 100
			}
			t.memory += resident(p.PID)
		}
		held := slices.Clone(listening)
		sockets.AddHolders(held, procs)
		t.ports = sockets.Ports(slices.DeleteFunc(held, func(s sockets.Socket) bool { return len(s.Holders) == 0 }))
		trees[pid] = t
	}
	m.at, m.ticks = now, ticks
	return trees
}

// resident returns the resident memory of a process in bytes, or 0 if that is unknown.
func resident(pid int) uint64 {
	raw, err := proctab.File(pid, "statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(raw)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return pages * uint64(os.Getpagesize())
}
