package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"pmcp/process/guard"
	"pmcp/process/proctab"
	"pmcp/registry"
	"pmcp/server/config"
	"pmcp/server/socket"
	"pmcp/server/wake"
)

// How often a monitor looks for sessions: while it follows none, and while it follows one.
const (
	monitorSeeks   = time.Second
	monitorFollows = 10 * time.Second
)

// A monitor prints the lines that wake a model, as its sessions make them.
type monitor struct {
	*screen
	dir     string // of the records
	project string
	session string       // the only session to follow; "" = see isOurs
	above   []proctab.ID // the processes above this one, the parent first
	began   time.Time    // of this process, however late it looks for sessions
	end     context.CancelFunc
	ended   chan struct{} // one slot: a session has ended

	done      sync.WaitGroup
	mu        sync.Mutex // guards the fields below
	following map[string]bool
}

// wake prints the lines that wake the model of a client until that or whatever has started this process ends. It
// follows one session after the other.
func (s *screen) wake(ctx context.Context, session string) error {
	s.found = true
	c, err := config.Read()
	if err != nil {
		return err
	}
	ctx, stop, err := s.whileRead(ctx)
	if err != nil {
		return err
	}
	defer stop()
	self, _ := proctab.Read(os.Getpid()) // if it fails, each session counts as later
	m := monitor{screen: s, dir: c.RegistryDir, project: c.ProjectDir, session: session, began: self.Since(), ended: make(chan struct{}, 1), following: make(map[string]bool)}
	ctx, m.end = context.WithCancel(ctx)
	defer m.done.Wait()
	defer m.end()
	started := 0
	if m.above, started = guard.Ancestors(); started > 0 {
		m.endWith(ctx, m.above[:started])
	}
	if s.out.width > 0 { // a person looks, at all sessions of the project
		m.above = nil
	}
	for {
		live, err := m.seek(ctx)
		if err != nil {
			return err
		}
		pause := monitorFollows
		if live == 0 && session != "" {
			return nil
		} else if live == 0 {
			pause = monitorSeeks
		}
		select {
		case <-time.After(pause):
		case <-m.ended:
		case <-ctx.Done():
			return nil
		}
	}
}

// endWith ends the monitor with the first of processes that ends.
func (m *monitor) endWith(ctx context.Context, processes []proctab.ID) {
	m.done.Go(func() {
		if guard.AwaitEnd(ctx, processes) {
			m.end()
		}
	})
}

// seek follows the sessions that it finds, and returns how many it follows.
func (m *monitor) seek(ctx context.Context) (following int, err error) {
	list, err := registry.List(m.dir)
	if err != nil {
		return 0, err
	}
	for i := range list {
		r := &list[i].Record
		if ours, client := m.isOurs(r); list[i].State == registry.Live && ours {
			m.mu.Lock()
			follow := !m.following[r.ID]
			m.following[r.ID] = true
			m.mu.Unlock()
			if follow {
				m.done.Go(func() { m.follow(ctx, r, client) })
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.following), nil
}

// isOurs reports whether a session is one to follow: its client is above this process, where client is its index, or
// is not known, or there is no process above, and it is of the same project.
func (m *monitor) isOurs(r *registry.Record) (ours bool, client int) {
	client = slices.Index(m.above, r.Client.Identity())
	switch {
	case m.session != "":
		return r.ID == m.session, client
	case r.Socket == "", r.Daemon(), r.ClientName == registry.ClientDaemon, r.Boot != proctab.BootID():
		return false, client
	case m.above == nil, r.Client.PID == 0:
		return r.Project == m.project, client
	}
	return client >= 0, client
}

// follow prints the lines of a session until that ends.
func (m *monitor) follow(ctx context.Context, r *registry.Record, client int) {
	following, stop := context.WithCancel(ctx)
	defer stop()
	if client >= 0 {
		m.endWith(following, m.above[:client+1])
	}
	next := -1
	if r.StartedAt.After(m.began) {
		next = 0
	}
	for {
		var a wake.Answer
		if err := socket.Call(ctx, m.dir, r.ID, wake.Method, wake.Request{After: next}, &a); err != nil {
			break
		}
		next = a.Next
		if err := m.print(a.Lines); err != nil { // nobody reads
			m.end()
		}
	}
	select {
	case <-time.After(monitorSeeks): // before it is asked again, if it lives
	case <-ctx.Done():
	}
	m.mu.Lock()
	delete(m.following, r.ID)
	m.mu.Unlock()
	select {
	case m.ended <- struct{}{}:
	default:
	}
}

func (m *monitor) print(lines []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	for _, l := range lines {
		err = errors.Join(err, m.out.println(l))
	}
	return errors.Join(err, m.out.flush())
}

// checkWake returns an error for flags and names that a monitor does not take.
func (s *screen) checkWake(names []string, session string, wake bool) error {
	switch {
	case session != "" && !wake:
		return errors.New("--session needs --wake")
	case wake && (len(names) > 0 || s.json || s.where != place{}):
		return errors.New("--wake prints lines about one session: it takes no names, --json, --all and --project")
	}
	return nil
}
