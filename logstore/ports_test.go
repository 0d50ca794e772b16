package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// firstFree returns a function that chooses the preferred port, else the last one, else the lowest from 4000 on that
// is not taken.
func firstFree(w PortWish, taken map[int]PortHolder) (int, error) {
	for _, port := range []int{w.Preferred, w.Last} {
		if _, is := taken[port]; !is && port > 0 {
			return port, nil
		}
	}
	for port := 4000; ; port++ {
		if _, is := taken[port]; !is {
			return port, nil
		}
	}
}

// reserve reserves ports for variables that prefer port 3000.
func reserve(t *testing.T, s *Store, project, name string, variables ...string) []int {
	t.Helper()
	var wishes []PortWish
	for _, v := range variables {
		wishes = append(wishes, PortWish{Project: project, Name: name, Variable: v, Preferred: 3000})
	}
	ports, err := s.ReservePorts(t.Context(), wishes, firstFree)
	checkError(t, err)
	return ports
}

func wantPorts(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got ports %v, want %v", what, got, want)
	}
}

// TestReservedPortsLiveWithTheirRun follows the ports of a process through its runs, as another window sees them.
func TestReservedPortsLiveWithTheirRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	var dead atomic.Bool // the first server; the maintainers of both read it
	isAlive := func(_, session string) bool { return session == "two" || session == "one" && !dead.Load() }
	one := openTest(t, Options{Path: path, Session: "one", Alive: isAlive})
	two := openTest(t, Options{Path: path, Session: "two", Alive: isAlive})
	wantPorts(t, "first", reserve(t, one, "/p", "web", "PORT", "API_PORT"), 3000, 4000)
	wantPorts(t, "before a run", reserve(t, two, "/q", "web", "PORT"), 4001)
	wantPorts(t, "again", reserve(t, one, "/p", "web", "PORT", "API_PORT"), 3000, 4000)

	for n := range 2 { // the ports belong to the next run too, without another reservation
		run, _, err := one.NewRun("/p", "web")
		checkError(t, err)
		wantPorts(t, fmt.Sprintf("run %d", n+1), reserve(t, two, "/q", "web", "PORT"), 4001)
		now := time.Now()
		one.EndCapture(run)
		one.SaveRun(run, now, now, []byte(`{}`))
		flush(t, one)
		wantPorts(t, fmt.Sprintf("end of run %d", n+1), reserve(t, two, "/q", "web", "PORT"), 3000)
		two.ReleasePorts(t.Context(), "/q", "web")
	}
	wantPorts(t, "released", reserve(t, one, "/p", "web", "PORT"), 3000)
	wantPorts(t, "kept choice", reserve(t, two, "/q", "web", "PORT"), 4001)
	dead.Store(true)
	wantPorts(t, "dead server", reserve(t, two, "/q", "web", "PORT"), 3000)
	var rows int
	if err := two.file.ReadDB.QueryRow(`SELECT count(*) FROM port_use`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("got %d rows, %v; want only that of the live server", rows, err)
	}
}

// TestReservePortsSaysWhoHolds checks what ReservePorts passes to choose.
func TestReservePortsSaysWhoHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	isAlive := func(string, string) bool { return true }
	one := openTest(t, Options{Path: path, Session: "one", Alive: isAlive})
	two := openTest(t, Options{Path: path, Session: "two", Alive: isAlive})
	reserve(t, one, "/p", "web", "PORT")
	run, _, err := one.NewRun("/p", "web")
	checkError(t, err)
	reserve(t, two, "/q", "api", "PORT")
	_, err = two.ReservePorts(t.Context(), []PortWish{{Project: "/q", Name: "db", Variable: "PORT"}}, func(w PortWish, taken map[int]PortHolder) (int, error) {
		want := map[int]PortHolder{3000: {"/p", "web", "PORT", false, run}, 4000: {"/q", "api", "PORT", true, 0}}
		if len(taken) != len(want) || taken[3000] != want[3000] || taken[4000] != want[4000] {
			t.Errorf("got taken %+v, want %+v", taken, want)
		}
		return 5000, nil
	})
	checkError(t, err)
}

// TestRefusedChoiceReservesNothing checks that an error for one wish leaves no port reserved.
func TestRefusedChoiceReservesNothing(t *testing.T) {
	for name, options := range map[string]Options{"file": {Path: filepath.Join(t.TempDir(), "pmcp.db")}, "memory": {}} {
		s, err := Open(t.Context(), options)
		checkError(t, err)
		defer s.Close()
		refusal := errors.New("no port is free")
		wishes := []PortWish{{Project: "/p", Name: "web", Variable: "A"}, {Project: "/p", Name: "api", Variable: "B"}}
		for what, choose := range map[string]ChoosePort{
			"refused": func(w PortWish, _ map[int]PortHolder) (int, error) {
				if w.Variable == "B" {
					return 0, refusal
				}
				return 3000, nil
			},
			"taken": func(PortWish, map[int]PortHolder) (int, error) { return 3000, nil },
		} {
			if got, err := s.ReservePorts(t.Context(), wishes, choose); err == nil || got != nil || what == "refused" && !errors.Is(err, refusal) {
				t.Errorf("%s, %s: got %v, %v; want an error", name, what, got, err)
			}
		}
		wantPorts(t, name, reserve(t, s, "/p", "db", "PORT"), 3000)
		wantPorts(t, name, reserve(t, s, "/p", "web", "PORT"), 4000)
		s.ReleasePorts(t.Context(), "/p", "db")
		wantPorts(t, name, reserve(t, s, "/p", "api", "PORT"), 3000)
		wantPorts(t, name+", kept", reserve(t, s, "/p", "web", "PORT"), 4000)
	}
}

// TestConcurrentReservationsDiffer reserves ports from two servers at once.
func TestConcurrentReservationsDiffer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	isAlive := func(string, string) bool { return true }
	stores := []*Store{openTest(t, Options{Path: path, Session: "one", Alive: isAlive}), openTest(t, Options{Path: path, Session: "two", Alive: isAlive})}
	var mu sync.Mutex
	var got []int
	var all sync.WaitGroup
	for i, s := range stores {
		for j := range 10 {
			all.Go(func() {
				ports := reserve(t, s, fmt.Sprintf("/p%d", i), fmt.Sprintf("web%d", j), "PORT", "API_PORT")
				mu.Lock()
				defer mu.Unlock()
				got = append(got, ports...)
			})
		}
	}
	all.Wait()
	slices.Sort(got)
	if distinct := slices.Compact(slices.Clone(got)); len(distinct) != 40 {
		t.Errorf("got ports %v, want 40 different ones", got)
	}
}

// TestReservePortsWithBlockedFile reserves ports in memory while the file cannot be written, and checks that they are
// stored with the next run.
func TestReservePortsWithBlockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	isAlive := func(string, string) bool { return true }
	one := openTest(t, Options{Path: path, Session: "one", Alive: isAlive})
	two := openTest(t, Options{Path: path, Session: "two", Alive: isAlive})
	reserve(t, two, "/q", "web", "PORT")
	one.portTable.pause()
	one.portTable.mu.Lock()
	one.portTable.pausedUntil = time.Now().Add(time.Hour)
	one.portTable.mu.Unlock()
	wantPorts(t, "paused", reserve(t, one, "/p", "web", "PORT"), 4000)
	wantPorts(t, "paused, another process", reserve(t, one, "/p", "api", "PORT"), 4001)
	one.reserveWait = time.Minute
	if _, _, err := one.NewRun("/p", "web"); err != nil {
		t.Fatal(err)
	}
	wantPorts(t, "after the start", reserve(t, two, "/q", "web", "PORT", "API_PORT"), 3000, 4001)
}
