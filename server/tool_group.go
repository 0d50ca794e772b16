package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/groups"
	"pmcp/process"
)

type createGroupArgs struct {
	Name         string       `json:"name"`
	Description  string       `json:"description,omitempty"`
	Members      []memberArgs `json:"members" jsonschema:"each may carry arguments of start_process"`
	StartDelayMS int          `json:"start_delay_ms,omitempty" min:"0" max:"600000"`
	StopStrategy string       `json:"stop_strategy,omitempty" enum:"reverse|parallel|sequential"`
}

// memberArgs is one member; its depends_on is that of specArgs.
type memberArgs struct {
	Process  string `json:"process"`
	specArgs `schema:"brief"`

	raw json.RawMessage // nil: only its name is given
}

// takeRaw keeps what was given for each member, so that it can be laid over its
// definition.
func (a *createGroupArgs) takeRaw(raw json.RawMessage) {
	var given struct{ Members []json.RawMessage }
	if json.Unmarshal(raw, &given) != nil || len(given.Members) != len(a.Members) {
		return
	}
	for i := range a.Members {
		a.Members[i].raw = given.Members[i]
	}
}

// groupResult is a group in an answer.
type groupResult struct {
	Name         string              `json:"name"`
	Description  string              `json:"description,omitempty"`
	State        string              `json:"state"` // up, partial or down
	Busy         string              `json:"busy,omitempty"`
	StopStrategy string              `json:"stop_strategy"`
	StartDelayMS int64               `json:"start_delay_ms,omitempty"`
	Order        []string            `json:"order"`
	Members      []groupMemberResult `json:"members" jsonschema:"each may carry arguments of start_process"`
	Changes      []string            `json:"changes,omitempty"`
	Problem      string              `json:"problem,omitempty"`
	Hint         string              `json:"hint,omitempty"`
}

type groupMemberResult struct {
	Name      string   `json:"name"`
	DependsOn []string `json:"depends_on,omitempty"`
	Phase     string   `json:"phase"`
	Why       string   `json:"why,omitempty"`
	State     string   `json:"state,omitempty"`
	Ready     *bool    `json:"ready,omitempty"`
	PID       int      `json:"pid,omitempty"`
	Run       int      `json:"run,omitempty"`
	ExitCode  *int     `json:"exit_code,omitempty"`
}

func ofGroup(st *groups.Status) groupResult {
	r := groupResult{
		Name: st.Group.Name, Description: st.Group.Description, State: string(st.State), Busy: st.Busy, Problem: st.Problem,
		StopStrategy: st.Group.StopStrategy.String(), StartDelayMS: st.Group.StartDelay.Milliseconds(), Order: []string{}, Members: []groupMemberResult{},
	}
	r.Order = append(r.Order, st.Order...) // nil of a group without members
	for _, m := range st.Members {
		member := groupMemberResult{Name: m.Process, Phase: string(m.Phase), Why: withoutInvalid(m.Why)}
		for _, d := range m.DependsOn {
			member.DependsOn = append(member.DependsOn, d.String())
		}
		if m.Known {
			p := ofStatus(&m.Status)
			member.State, member.Ready, member.PID, member.Run, member.ExitCode = p.State, p.Ready, p.PID, p.Run, p.ExitCode
		}
		r.Members = append(r.Members, member)
	}
	return r
}

func (r groupResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "group %s: %s", r.Name, r.State)
	if r.Busy != "" {
		fmt.Fprintf(&b, ", %s", r.Busy)
	}
	fmt.Fprintf(&b, ", start order: %s", strings.Join(r.Order, ", "))
	if r.StartDelayMS > 0 {
		fmt.Fprintf(&b, ", %d ms apart", r.StartDelayMS)
	}
	if r.StopStrategy != groups.StopReverse.String() {
		fmt.Fprintf(&b, ", stopped %s", r.StopStrategy)
	}
	b.WriteString("\n")
	if r.Description != "" {
		fmt.Fprintf(&b, "  %q\n", r.Description)
	}
	for _, m := range r.Members {
		fmt.Fprintf(&b, "  %s: %s", m.Name, m.Phase)
		if m.State != "" && m.State != m.Phase {
			fmt.Fprintf(&b, " (%s)", m.State)
		}
		if m.Why != "" {
			fmt.Fprintf(&b, ", %s", m.Why)
		}
		if len(m.DependsOn) > 0 {
			fmt.Fprintf(&b, ", after %s", strings.Join(m.DependsOn, ", "))
		}
		if m.PID > 0 {
			fmt.Fprintf(&b, ", pid %d", m.PID)
		}
		b.WriteString("\n")
	}
	for _, line := range slices.Concat(r.Changes, nonEmpty(r.Problem), nonEmpty(r.Hint)) {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func createGroupTool() tool {
	return define(tool{
		name: "create_group", title: "Define group", toolset: setGroups,
		description: "Defines a set of processes with dependencies, kept for later sessions. Starts nothing.",
		hints:       hints{idempotent: true},
	}, createGroup)
}

func createGroup(ctx context.Context, s *Server, a createGroupArgs) (groupResult, error) {
	strategy, err := groups.ParseStrategy(a.StopStrategy)
	if err != nil {
		return groupResult{}, err
	}
	g := groups.Group{
		Name: a.Name, Description: a.Description, StopStrategy: strategy, StartDelay: time.Duration(a.StartDelayMS) * time.Millisecond,
	}
	for _, m := range a.Members {
		if m.Group != "" && m.Group != a.Name {
			return groupResult{}, fmt.Errorf("argument members: %s: group: it becomes a member of %s, and of %s only by add_to_group", m.Process, a.Name, m.Group)
		}
		g.Members = append(g.Members, groups.Member{Process: m.Process, DependsOn: dependencies(m.DependsOn)})
	}
	if err := g.Validate(); err != nil {
		return groupResult{}, err
	}
	s.o.Mask.Spare(g.Name)
	for _, m := range g.Members {
		s.o.Mask.Spare(m.Process)
	}
	defined, err := s.memberDefinitions(ctx, a.Members) // all are looked at before anything is written
	if err != nil {
		return groupResult{}, err
	}
	existed, changes, err := s.o.Groups.Save(ctx, g)
	if err != nil {
		return groupResult{}, err
	}
	for _, d := range defined {
		changes = append(changes, s.changedMember(ctx, d)...)
		s.keepDefinition(d.name, d.def)
	}
	r, err := s.groupNow(ctx, a.Name)
	r.Changes = changes
	if existed && len(changes) == 0 {
		r.Hint = "it was defined the same way before"
	}
	return r, err
}

func dependencies(args []dependencyArgs) []groups.Dependency {
	var deps []groups.Dependency
	for _, d := range args {
		deps = append(deps, groups.Dependency{Process: d.Process, Condition: groups.Condition(d.Condition)})
	}
	return deps
}

func (s *Server) groupNow(ctx context.Context, name string) (groupResult, error) {
	st, err := s.o.Groups.Status(ctx, name)
	if err != nil {
		return groupResult{}, err
	}
	return ofGroup(&st), nil
}

// checkGrouping refuses dependencies that no group would mind.
func (a specArgs) checkGrouping() error {
	if a.Group == "" && len(a.DependsOn) > 0 {
		return fmt.Errorf("argument depends_on: it goes with group, whose start_group minds it; give group too, or use add_to_group")
	}
	return nil
}

// checkJoin finds out whether a process can be part of the group that it is
// started with, before anything is started.
func (s *Server) checkJoin(ctx context.Context, name string, def specArgs) error {
	if def.Group == "" {
		return nil
	}
	return s.o.Groups.CheckAdd(ctx, def.Group, groups.Member{Process: name, DependsOn: dependencies(def.DependsOn)}, true)
}

// joinGroup makes a process that was started with group part of it.
func (s *Server) joinGroup(ctx context.Context, name string, def specArgs) error {
	if def.Group == "" {
		return nil
	}
	_, err := s.o.Groups.Add(ctx, def.Group, groups.Member{Process: name, DependsOn: dependencies(def.DependsOn)}, true)
	if err == nil {
		s.changed("")
	}
	return err
}

type addToGroupArgs struct {
	Group     string           `json:"group"`
	Process   string           `json:"process"`
	DependsOn []dependencyArgs `json:"depends_on,omitempty"`
}

func addToGroupTool() tool {
	return define(tool{
		name: "add_to_group", title: "Add to group", toolset: setGroups,
		description: "Adds a process to a group, or changes its dependencies.",
		hints:       hints{idempotent: true},
	}, func(ctx context.Context, s *Server, a addToGroupArgs) (groupResult, error) {
		if _, err := s.o.Groups.Status(ctx, a.Group); err != nil {
			return groupResult{}, err
		}
		if _, err := s.memberDefinition(ctx, "process", memberArgs{Process: a.Process}); err != nil {
			return groupResult{}, err
		}
		if _, err := s.o.Groups.Add(ctx, a.Group, groups.Member{Process: a.Process, DependsOn: dependencies(a.DependsOn)}, false); err != nil {
			return groupResult{}, err
		}
		return s.groupNow(ctx, a.Group)
	})
}

type removeFromGroupArgs struct {
	Group   string `json:"group"`
	Process string `json:"process,omitempty"`
}

func removeFromGroupTool() tool {
	return define(tool{
		name: "remove_from_group", title: "Remove from group", toolset: setGroups,
		description: "Takes a process out of a group; without process forgets the group.",
		hints:       hints{destructive: true, idempotent: true},
	}, func(ctx context.Context, s *Server, a removeFromGroupArgs) (groupResult, error) {
		if a.Process != "" {
			if _, err := s.o.Groups.Remove(ctx, a.Group, a.Process); err != nil {
				return groupResult{}, err
			}
			return s.groupNow(ctx, a.Group)
		}
		r, err := s.groupNow(ctx, a.Group)
		if err != nil {
			return r, err
		}
		r.Hint = "the group is forgotten; its processes stay as they are"
		return r, s.o.Groups.Delete(ctx, a.Group)
	})
}

type listGroupsArgs struct {
	Group string `json:"group,omitempty"`
}

type listGroupsResult struct {
	Groups []groupResult `json:"groups"`
	Hint   string        `json:"hint,omitempty"`
}

func (r listGroupsResult) text() string {
	var b strings.Builder
	for _, g := range r.Groups {
		b.WriteString(g.text())
	}
	for _, line := range nonEmpty(r.Hint) {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func listGroupsTool() tool {
	return define(tool{
		name: "list_groups", title: "List groups", toolset: setGroups,
		description: "Groups with members, start order, states and reasons.",
		hints:       hints{readOnly: true, idempotent: true},
	}, listGroups)
}

func listGroups(ctx context.Context, s *Server, a listGroupsArgs) (listGroupsResult, error) {
	r := listGroupsResult{Groups: []groupResult{}}
	if a.Group != "" {
		g, err := s.groupNow(ctx, a.Group)
		r.Groups = append(r.Groups, g)
		return r, err
	}
	all, err := s.o.Groups.List(ctx)
	if err != nil {
		return r, err
	}
	for i := range all {
		r.Groups = append(r.Groups, ofGroup(&all[i]))
	}
	if len(all) == 0 {
		r.Hint = "no groups"
	}
	return r, nil
}

// StartMember starts a member of a group by its definition, for groups.
func (s *Server) StartMember(ctx context.Context, name string, ifRunning process.IfRunning) (process.Status, error) {
	def, ok, err := s.definition(ctx, name)
	if err != nil {
		return process.Status{}, err
	}
	if !ok {
		return process.Status{}, fmt.Errorf("%w: %s has no definition; start_process with a command gives it one", process.ErrInvalid, name)
	}
	if err := s.ownOnly(ctx, name); err != nil {
		return process.Status{}, err
	}
	st, _, err := s.launch(ctx, name, def, launchOptions{ifRunning: ifRunning})
	return st, err
}
