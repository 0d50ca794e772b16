package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"pmcp/process"
	"pmcp/process/prose"
)

// State is the state of a group as a whole.
type State string

// The states of a group.
const (
	// Up means that every member is up or done, and at least one is up.
	Up State = "up"
	// Partial means that some members are running.
	Partial State = "partial"
	// Down means that no member is running.
	Down State = "down"
)

// Phase is the state of a member within its group.
type Phase string

// The phases.
const (
	// MemberUp means that the member is running and, if it has a readiness rule,
	// ready.
	MemberUp Phase = "up"
	// MemberDone means that the member has ended with exit code 0, as another
	// member requires or as what is not a service does.
	MemberDone Phase = "done"
	// MemberStarting means that the member is starting, is not ready yet, or is
	// about to be restarted by the restart policy.
	MemberStarting Phase = "starting"
	// MemberStopping means that the member is being stopped.
	MemberStopping Phase = "stopping"
	// MemberPending means that a start of the group is in progress and the
	// member's turn has not come.
	MemberPending Phase = "pending"
	// MemberBlocked means that the last start of the group did not start the
	// member because of a dependency.
	MemberBlocked Phase = "blocked"
	// MemberDown means that the member is not running.
	MemberDown Phase = "down"
)

// MemberStatus is the status of one member at one moment.
type MemberStatus struct {
	Member
	// Phase is the member's phase, Why the reason in words. Why is "" if the
	// member is up or done, unless another server runs the member.
	Phase Phase
	Why   string
	// Status is the member's entry in the process manager or, with Owner or if it
	// is later, the member's run in another live server. If there is neither, Status
	// is zero and Known is false.
	Status process.Status
	Known  bool
	// Owner names the other server that runs the member, or is "" if none does.
	Owner string
}

// Status is the status of one group at one moment.
type Status struct {
	// Group is the definition.
	Group Group
	// State summarises the members of the group. A group without members is Down.
	State State
	// Order holds the names of the members in start order.
	Order []string
	// Members are in start order.
	Members []MemberStatus
	// Busy is "starting" or "stopping" while an operation is in progress, else
	// "".
	Busy string
	// Problem explains why the stored definition cannot be used, or is "" if it
	// can be used. With a problem, Group has only a name.
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
	elsewhere := m.runsElsewhere(ctx, members...)
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
	return m.status(d, m.runsElsewhere(ctx, d.names()...)), nil
}

// status returns the status of a group. elsewhere holds the runs of members in
// other servers.
func (m *Manager) status(d definition, elsewhere map[string]ForeignRun) Status {
	st := Status{Group: d.Group}
	if d.err != nil {
		st.Problem = d.err.Error()
	}
	outcomes, busy := m.lastOperation(d.Name)
	st.Busy = busy
	st.Order, _ = d.Order() // a definition that was loaded has an order
	for _, name := range st.Order {
		member, _ := d.member(name)
		run := elsewhere[name]
		ms := m.memberStatus(d.Group, member, outcomes[name], busy, run)
		if run.Owner != "" {
			phase, why := livePhase(run.Status)
			ms.Status, ms.Known, ms.Owner = run.Status, true, run.Owner
			ms.Phase, ms.Why = phase, prose.Join("; ", "it runs "+inOtherServer(run.Owner), why)
		}
		st.Members = append(st.Members, ms)
	}
	st.State = groupState(st.Members)
	return st
}

// lastOperation returns the outcomes of the current or last operation on a group,
// by process. busy is Status.Busy.
func (m *Manager) lastOperation(group string) (outcomes map[string]Outcome, busy string) {
	m.mu.Lock()
	op := m.ops[group]
	m.mu.Unlock()
	if op == nil {
		return nil, ""
	}
	switch {
	case op.isOver():
	case op.stop:
		busy = "stopping"
	default:
		busy = "starting"
	}
	outcomes = make(map[string]Outcome)
	list, _ := op.snapshot()
	for _, o := range list {
		outcomes[o.Process] = o
	}
	return outcomes, busy
}

// memberStatus returns the status of a member. The status is that of the member's
// process if the process is running or has ended since the last operation, and
// otherwise last, the outcome of that operation. A later run that has ended in another
// server, there, counts as if it had ended here.
func (m *Manager) memberStatus(g Group, member Member, last Outcome, busy string, there ForeignRun) MemberStatus {
	ms := MemberStatus{Member: member}
	st, err := m.o.Processes.Status(member.Process)
	if there.Owner == "" && there.RunID > st.RunID && !st.State.Active() {
		st, err = there.Status, nil
	}
	ms.Status, ms.Known = st, err == nil
	newest := laterTime(st.StartedAt, st.EndedAt)
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
	case st.State == process.Exited && (!st.Spec.Service || g.awaitsExit(member.Process)):
		ms.Phase = MemberDone
	default:
		ms.Phase, ms.Why = MemberDown, describeEnd(st)
	}
	return ms
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// livePhase returns the phase of a member whose process is active, and the reason.
func livePhase(st process.Status) (Phase, string) {
	switch {
	case st.State == process.Stopping:
		return MemberStopping, ""
	case st.State == process.Backoff && st.Exit != nil && st.NextRetry.IsZero(): // in another server
		return MemberStarting, fmt.Sprintf("it ended with %s and will be started again", st.Exit)
	case st.State == process.Backoff && st.Exit != nil:
		return MemberStarting, fmt.Sprintf("it ended with %s and will be started again at %s", st.Exit, st.NextRetry.Format(time.TimeOnly))
	case st.State != process.Running:
		return MemberStarting, ""
	case st.Spec.ChecksReady() && (st.Ready == nil || !*st.Ready):
		return MemberStarting, notReady(&st)
	default:
		return MemberUp, ""
	}
}

func notReady(st *process.Status) string {
	if why := st.WhyNotReady(); why != "" {
		return "not ready: " + why
	}
	if st.NotReady == "" {
		return "not ready yet"
	}
	return "not ready yet: " + st.NotReady
}

func (g Group) awaitsExit(name string) bool {
	return slices.ContainsFunc(g.Members, func(m Member) bool {
		return slices.Contains(m.DependsOn, Dependency{Process: name, Condition: ExitedOK})
	})
}

// groupState returns the state of a group with these members.
func groupState(members []MemberStatus) State {
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
