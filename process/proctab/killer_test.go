package proctab

import (
	"slices"
	"syscall"
	"testing"
)

// recorder returns a Killer that sends no signals, and the record of the signals it would have
// sent.
func recorder() (*Killer, *[]string) {
	sent := new([]string)
	return &Killer{Signal: func(p Proc, sig syscall.Signal) error {
		*sent = append(*sent, p.Comm+" "+map[syscall.Signal]string{syscall.SIGKILL: "KILL", syscall.SIGSTOP: "STOP"}[sig])
		return nil
	}}, sent
}

// proc returns a process with that one-letter name, which is stopped or not.
func proc(name string, stopped bool) Proc {
	return Proc{ID: ID{PID: int(name[0]), Start: 1}, Comm: name, Stopped: stopped}
}

// TestKillerStopsWhatMultiplies checks how a Killer kills a tree: processes that do not multiply
// are killed at once and never stopped; processes that multiply are stopped until, in two passes,
// no new one appears and all are stopped, and then are killed, children first.
func TestKillerStopsWhatMultiplies(t *testing.T) {
	a, b, c := proc("a", false), proc("b", false), proc("c", false)
	bs, cs := proc("b", true), proc("c", true)
	for name, passes := range map[string][]struct {
		procs []Proc
		sent  []string
		again bool
	}{
		"ordinary": {
			{[]Proc{a, b}, []string{"b KILL", "a KILL"}, true},
			{[]Proc{a}, []string{"a KILL"}, false},
			{nil, nil, false},
		},
		"multiplying": {
			{[]Proc{a}, []string{"a KILL"}, true},
			{[]Proc{b}, []string{"b STOP"}, true},
			{[]Proc{bs, c}, []string{"c STOP"}, true},
			{[]Proc{bs, c}, []string{"c STOP"}, false},
			{[]Proc{bs, cs}, nil, true},
			{[]Proc{bs, cs}, []string{"c KILL", "b KILL"}, true},
			{[]Proc{b}, []string{"b KILL"}, false},
		},
	} {
		k, sent := recorder()
		for i, pass := range passes {
			*sent = nil
			again := k.Pass(pass.procs)
			if !slices.Equal(*sent, pass.sent) || again != pass.again {
				t.Errorf("%s, pass %d: sent %q, again %v; want %q, %v", name, i, *sent, again, pass.sent, pass.again)
			}
		}
	}
}
