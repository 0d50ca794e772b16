package logstore

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"pmcp/logstore/db"
)

const (
	// portWait bounds the time that ReservePorts waits for the file, as long as SQLite waits for another writer. After
	// that time it chooses ports by what it can read, and does not try to write for portPause.
	portWait  = 5 * time.Second
	portPause = 10 * time.Second
	// maxPort is the highest port number.
	maxPort = 1<<16 - 1
)

// A PortWish asks for a port for an environment variable of a process.
type PortWish struct {
	// Project and Name identify the process.
	Project, Name string
	// Variable is the environment variable that gets the port.
	Variable string
	// Preferred is the port that the variable should get; 0: any.
	Preferred int
	// Last is the port other than Preferred that the variable had last; 0: none is known. ReservePorts sets it.
	Last int
}

// A PortHolder is what has reserved a port.
type PortHolder struct {
	// Project, Name and Variable identify the process and its environment variable.
	Project, Name, Variable string
	// Own means that this server reserved the port.
	Own bool
	// Run is the id of the run that was started with the port; 0 if none was started yet.
	Run int64
}

// A ChoosePort returns the port for a wish. taken holds the ports that are reserved, also by the wishes before this one,
// but not those that the processes of the wishes had before. A ChoosePort must not call the Store, and should take
// milliseconds: other servers cannot write during that time.
type ChoosePort func(wish PortWish, taken map[int]PortHolder) (port int, err error)

// A portTable holds the ports that this server has reserved.
type portTable struct {
	*storage
	captures *captureTable

	mu          sync.Mutex // guards the fields below
	held        map[processKey]heldPorts
	last        map[portKey]int // the ports other than the preferred ones, if there is no file
	pausedUntil time.Time       // until when nothing is written
}

// heldPorts are the ports of a process, by variable.
type heldPorts struct {
	run   int64 // started with them; 0 = none yet
	ports map[string]int
}

type portKey struct {
	processKey
	variable string
}

func (w *PortWish) process() processKey { return processKey{w.Project, w.Name} }
func (w *PortWish) key() portKey        { return portKey{w.process(), w.Variable} }

func newPortTable(st *storage, captures *captureTable) *portTable {
	return &portTable{storage: st, captures: captures, held: make(map[processKey]heldPorts), last: make(map[portKey]int)}
}

// ReservePorts chooses a port for each wish, in order, and reserves them all in one transaction: no other server can
// reserve in between. It returns them in the order of wishes. The ports replace those that this server has reserved
// for the processes of the wishes. They belong to the next run of its process that this server starts, and to the runs
// after that one, until ReservePorts or ReleasePorts is called again. A reservation does not count once that run has ended or
// its server is dead.
//
// If choose returns an error, ReservePorts returns that error and reserves nothing. It may call choose more than once
// for a wish. If the file cannot be written within 5 s, the reservations are kept in memory, where other servers do not
// see them.
func (p *portTable) ReservePorts(ctx context.Context, wishes []PortWish, choose ChoosePort) ([]int, error) {
	c := portChoice{portTable: p, wishes: slices.Clone(wishes), choose: choose, replaced: make(map[processKey]bool), session: p.captures.ids.current()}
	for i := range wishes {
		c.replaced[wishes[i].process()] = true
	}
	if !p.memoryOnly() && !p.paused() {
		within, cancel := context.WithTimeout(ctx, portWait)
		defer cancel()
		err := p.update(within, func(tx *sql.Tx) error { return c.store(within, tx) })
		switch {
		case err == nil || c.refused != nil:
			return c.ports, c.refused
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		p.log.Warn("cannot store the ports of processes", "error", err)
		p.pause()
	}
	ctx, cancel := context.WithTimeout(ctx, newRunRead)
	defer cancel()
	err := p.withRead(ctx, func(ctx context.Context, q db.Querier) error {
		if q == nil {
			return nil
		}
		return c.read(ctx, q)
	})
	if err != nil {
		p.log.Warn("cannot read the ports of other servers", "error", err)
	}
	if c.chooseAll(); c.refused == nil {
		p.hold(&c)
	}
	return c.ports, c.refused
}

func (p *portTable) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.pausedUntil)
}

func (p *portTable) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pausedUntil = time.Now().Add(portPause)
}

// ReleasePorts ends the reservations of this server for a process. Call it if no run is started with them, or if the
// process is started without ports.
func (p *portTable) ReleasePorts(ctx context.Context, project, name string) {
	key := processKey{project, name}
	p.mu.Lock()
	_, held := p.held[key]
	delete(p.held, key)
	p.mu.Unlock()
	if !held || p.memoryOnly() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, newRunRead)
	defer cancel()
	if err := p.update(ctx, func(tx *sql.Tx) error { return p.deleteOwn(ctx, tx, key) }); err != nil {
		p.log.Warn("cannot release the ports of a process; other servers see them until this one ends", "process", name, "error", err)
	}
}

// started records that a run was started with the ports of its process.
func (p *portTable) started(key processKey, run int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.held[key]; ok {
		h.run = run
		p.held[key] = h
	}
}

// storeStarted stores what started records.
func (p *portTable) storeStarted(ctx context.Context, q db.Querier, key processKey, run int64) error {
	p.mu.Lock()
	ports := maps.Clone(p.held[key].ports)
	p.mu.Unlock()
	if len(ports) == 0 {
		return nil
	}
	if err := p.deleteOwn(ctx, q, key); err != nil {
		return err
	}
	for variable, port := range ports {
		if err := storePortUse(ctx, q, db.SessionOf(run), portKey{key, variable}, port, run); err != nil {
			return err
		}
	}
	return nil
}

func storePortUse(ctx context.Context, q db.Querier, session int64, key portKey, port int, run int64) error {
	return execute(ctx, q, "store a port", `INSERT OR REPLACE INTO port_use (session, project, name, variable, port, run) VALUES (?, ?, ?, ?, ?, ?)`,
		session, key.project, key.name, key.variable, port, run)
}

func (p *portTable) deleteOwn(ctx context.Context, q db.Querier, key processKey) error {
	return execute(ctx, q, "release a port", `DELETE FROM port_use WHERE project = ? AND name = ?
		AND session IN (SELECT id FROM session WHERE uuid = ?)`, key.project, key.name, p.opts.Session)
}

// hold records the ports of a choice as those of this server.
func (p *portTable) hold(c *portChoice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range c.replaced {
		p.held[key] = heldPorts{ports: make(map[string]int)}
	}
	for i, port := range c.ports {
		w := &c.wishes[i]
		p.held[w.process()].ports[w.Variable] = port
		if port != w.Preferred && p.file == nil {
			p.last[w.key()] = port
		}
	}
}

// inUse returns the ports of this server whose runs have not ended, except those of the given processes.
func (p *portTable) inUse(except map[processKey]bool) map[int]PortHolder {
	p.mu.Lock()
	held := maps.Clone(p.held)
	p.mu.Unlock()
	taken := make(map[int]PortHolder)
	for key, h := range held {
		if except[key] || h.run != 0 && p.captures.isOver(h.run) {
			continue
		}
		for variable, port := range h.ports {
			taken[port] = PortHolder{key.project, key.name, variable, true, h.run}
		}
	}
	return taken
}

// isOver reports whether a run of this Store has a row that says when it ended.
func (t *captureTable) isOver(run int64) bool {
	r := t.ownRun(run)
	if r == nil {
		return true // stored, and evicted
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.row.ended != 0
}

// A portChoice is one call of ReservePorts.
type portChoice struct {
	*portTable
	session  int64 // whose block of run ids is in use
	wishes   []PortWish
	choose   ChoosePort
	replaced map[processKey]bool // the processes of the wishes
	others   map[int]PortHolder  // what other servers have reserved
	over     []portUse           // rows that no longer count
	ports    []int               // chosen, one for each wish
	refused  error               // from choose
}

// chooseAll chooses the ports.
func (c *portChoice) chooseAll() {
	c.ports, c.refused = nil, nil
	taken := c.inUse(c.replaced)
	maps.Copy(taken, c.others)
	for _, w := range c.wishes {
		if c.file == nil {
			c.mu.Lock()
			w.Last = c.last[w.key()]
			c.mu.Unlock()
		}
		if w.Last == w.Preferred {
			w.Last = 0
		}
		port, err := c.choose(w, maps.Clone(taken))
		if _, is := taken[port]; err == nil && (is || port < 1 || port > maxPort) {
			err = fmt.Errorf("port %d of %s is reserved or not a port", port, w.Variable)
		}
		if err != nil {
			c.ports, c.refused = nil, err
			return
		}
		taken[port] = PortHolder{w.Project, w.Name, w.Variable, true, 0}
		c.ports = append(c.ports, port)
	}
}

// store chooses the ports and stores them.
func (c *portChoice) store(ctx context.Context, tx *sql.Tx) error {
	if err := c.read(ctx, tx); err != nil {
		return err
	}
	if c.chooseAll(); c.refused != nil {
		return c.refused
	}
	for _, u := range c.over {
		if err := execute(ctx, tx, "delete a port", `DELETE FROM port_use WHERE session = ? AND project = ? AND name = ?`, u.session, u.Project, u.Name); err != nil {
			return err
		}
	}
	for key := range c.replaced {
		if err := c.deleteOwn(ctx, tx, key); err != nil {
			return err
		}
	}
	for i, port := range c.ports {
		if err := c.storePort(ctx, tx, &c.wishes[i], port); err != nil {
			return err
		}
	}
	c.hold(c) // before the commit: a run that is claimed right after it has the ports
	return nil
}

func (c *portChoice) storePort(ctx context.Context, tx *sql.Tx, w *PortWish, port int) error {
	err := storePortUse(ctx, tx, c.session, w.key(), port, 0)
	if err != nil || port == w.Preferred {
		return err
	}
	return execute(ctx, tx, "store a port", `INSERT OR REPLACE INTO port (project, name, variable, port, at) VALUES (?, ?, ?, ?, ?)`,
		w.Project, w.Name, w.Variable, port, time.Now().UnixNano())
}

// A portUse is a row of port_use.
type portUse struct {
	PortHolder
	session int64
	port    int
	ended   sql.NullInt64 // when the run ended; 0: it has not; NULL: it has no row
}

// read reads the ports that other live servers have reserved, the rows that no longer count, and the last ports of the
// wishes.
func (c *portChoice) read(ctx context.Context, q db.Querier) error {
	c.others, c.over = make(map[int]PortHolder), nil
	for i := range c.wishes {
		w := &c.wishes[i]
		last, err := queryColumn[int](ctx, q, "read a port", `SELECT port FROM port WHERE project = ? AND name = ? AND variable = ?`, w.Project, w.Name, w.Variable)
		if err != nil {
			return err
		}
		if len(last) > 0 {
			w.Last = last[0]
		}
	}
	all, err := queryAll(ctx, q, "read the ports in use", func(row *sql.Rows, u *portUse) error {
		return row.Scan(&u.session, &u.Project, &u.Name, &u.Variable, &u.port, &u.Run, &u.ended)
	}, `SELECT session, project, name, variable, port, run, (SELECT ended FROM run WHERE run.id = port_use.run) FROM port_use`)
	servers := newServerLookup(c.captures, q)
	for _, u := range all {
		srv, err := servers.server(ctx, u.session<<db.RunBits)
		switch {
		case err != nil:
			return err
		case srv.own: // held in memory
		case !srv.alive || u.Run != 0 && u.ended != sql.NullInt64{Valid: true}:
			c.over = append(c.over, u)
		default:
			c.others[u.port] = u.PortHolder
		}
	}
	return err
}

// retirePorts deletes the ports that were chosen before the cutoff.
func retirePorts(ctx context.Context, q db.Querier, cutoff int64) error {
	return execute(ctx, q, "drop old ports", `DELETE FROM port WHERE at < ?`, cutoff)
}
