package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"pmcp/process"
)

// State is what a group as a whole is.
type State string

// The states of a group.
const (
	// Up: every member is up or done, at least one is up.
	Up State = "up"
	// Partial: something of it runs.
	Partial State = "partial"
	// Down: nothing of it runs.
	Down State = "down"
)

// Phase is what a member is within its group.
type Phase string

// The phases.
const (
	// MemberUp: it runs and, where it has a readiness rule, is ready.
	MemberUp Phase = "up"
	// MemberDone: it has ended with exit code 0, which is what another member
	// waits for.
	MemberDone Phase = "done"
	// MemberStarting: it is starting, not ready yet, or about to be started
	// again by the restart policy.
	MemberStarting Phase = "starting"
	// MemberStopping: it is being stopped.
	MemberStopping Phase = "stopping"
	// MemberPending: a start is under way and its turn has not come.
	MemberPending Phase = "pending"
	// MemberBlocked: the last start of the group did not start it because of
	// what it depends on.
	MemberBlocked Phase = "blocked"
	// MemberDown: it does not run.
	MemberDown Phase = "down"
)

// MemberStatus is one member at one moment.
type MemberStatus struct {
	Member
	// Phase is what it is, Why the reason in words; "" where it is up
	// or done, unless another server runs it.
	Phase Phase
	Why   string
	// Status is its entry in the process manager or, with Owner, its run in
	// another live server; zero, with Known false, if there is neither.
	Status process.Status
	Known  bool
	// Owner names the other server that runs it; "" if none does.
	Owner string
}

// Status is one group at one moment.
type Status struct {
	// Group is the definition.
	Group Group
	// State sums its members up. A group without members is Down.
	State State
	// Order is the order of starting.
	Order []string
	// Members are in that order.
	Members []MemberStatus
	// Busy is "starting" or "stopping" while an operation is under way, else "".
	Busy string
	// Problem says why a stored definition cannot be used; "" if it can. Group
	// has only a name then.
	Problem string
}

// List returns every group of the project, by name. It may wait for storage.
func (m *Manager) List(ctx context.Context) ([]Status, error) {
	all, err := m.load(ctx)
	if err != nil {
		return nil, err
	}
	var members []string
	for _, d := range all {
		members = append(members, d.names()...)
	}
	elsewhere := m.elsewhere(ctx, members...)
	list := make([]Status, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, m.status(all[name], elsewhere))
	}
	return list, nil
}

// Status returns the group called name. Its error wraps ErrUnknown.
func (m *Manager) Status(ctx context.Context, name string) (Status, error) {
	d, err := m.find(ctx, name, false)
	if err != nil {
		return Status{}, err
	}
	return m.status(d, m.elsewhere(ctx, d.names()...)), nil
}

// status is what a group is; elsewhere are the runs of members in other servers.
func (m *Manager) status(d definition, elsewhere map[string]ForeignRun) Status {
	st := Status{Group: d.Group, State: Down, Problem: d.problem}
	outcomes, busy := m.lastOperation(d.Name)
	st.Busy = busy
	order, err := d.Order()
	if err != nil { // a definition that is loaded has an order
		st.Problem = err.Error()
		return st
	}
	st.Order = order
	for _, name := range order {
		member, _ := d.member(name)
		ms := m.memberStatus(d.Group, member, outcomes[name], busy)
		if run, ok := elsewhere[name]; ok {
			ms.runsElsewhere(run)
		}
		st.Members = append(st.Members, ms)
	}
	st.State = sumUp(st.Members)
	return st
}

// lastOperation returns what the current or last operation of a group has come
// to, by process.
func (m *Manager) lastOperation(group string) (outcomes map[string]Outcome, busy string) {
	m.mu.Lock()
	op := m.ops[group]
	m.mu.Unlock()
	if op == nil {
		return nil, ""
	}
	switch {
	case op.over():
	case op.stop:
		busy = "stopping"
	default:
		busy = "starting"
	}
	outcomes = make(map[string]Outcome)
	list, _ := op.view()
	for _, o := range list {
		outcomes[o.Process] = o
	}
	return outcomes, busy
}

// memberStatus says what a member is: by its process where that runs or has
// ended since the last operation, by that operation otherwise.
func (m *Manager) memberStatus(g Group, member Member, last Outcome, busy string) MemberStatus {
	ms := MemberStatus{Member: member}
	st, err := m.o.Processes.Status(member.Process)
	ms.Status, ms.Known = st, err == nil
	newest := later(st.StartedAt, st.EndedAt)
	switch {
	case ms.Known && st.State.Active():
		ms.Phase, ms.Why = livePhase(st)
	case busy == "starting" && last.Result == Pending:
		ms.Phase, ms.Why = MemberPending, last.Why
	case last.Blocked && last.At.After(newest):
		ms.Phase, ms.Why = MemberBlocked, last.Why
	case last.Result == HasFailed && last.At.After(newest) && last.Why != "":
		ms.Phase, ms.Why = MemberDown, last.Why
	case !ms.Known:
		ms.Phase, ms.Why = MemberDown, "not started in this session"
	case st.State == process.Exited && g.awaitsExit(member.Process):
		ms.Phase = MemberDone
	default:
		ms.Phase, ms.Why = MemberDown, ending(st)
	}
	return ms
}

// runsElsewhere makes ms that of a member which another server runs.
func (ms *MemberStatus) runsElsewhere(run ForeignRun) {
	phase, why := livePhase(run.Status)
	ms.Status, ms.Known, ms.Owner = run.Status, true, run.Owner
	ms.Phase, ms.Why = phase, joinWhy("it runs "+inServerOf(run.Owner), why)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// livePhase is the phase of a process that runs, or is about to.
func livePhase(st process.Status) (Phase, string) {
	switch {
	case st.State == process.Stopping:
		return MemberStopping, ""
	case st.State == process.Backoff && st.Exit != nil:
		return MemberStarting, fmt.Sprintf("it ended with %s and will be started again at %s", st.Exit, st.NextRetry.Format(time.TimeOnly))
	case st.State != process.Running:
		return MemberStarting, ""
	case st.Spec.ChecksReady() && (st.Ready == nil || !*st.Ready):
		return MemberStarting, notReady(st)
	default:
		return MemberUp, ""
	}
}

func notReady(st process.Status) string {
	if st.NotReady == "" {
		return "not ready yet"
	}
	return "not ready yet: " + st.NotReady
}

// awaitsExit says whether a member waits for the end of name.
func (g Group) awaitsExit(name string) bool {
	return slices.ContainsFunc(g.Members, func(m Member) bool {
		return slices.Contains(m.DependsOn, Dependency{Process: name, Condition: ExitedOK})
	})
}

// sumUp is the state of a group with such members.
func sumUp(members []MemberStatus) State {
	up, live := true, false
	for _, m := range members {
		up = up && (m.Phase == MemberUp || m.Phase == MemberDone)
		live = live || m.Known && m.Status.GoesOn()
	}
	switch {
	case !live:
		return Down
	case up:
		return Up
	default:
		return Partial
	}
}
