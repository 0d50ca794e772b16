package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/groups"
	"pmcp/process/prose"
	"pmcp/server/project"
)

type createGroupArgs struct {
	Name           string           `json:"name"`
	Description    string           `json:"description,omitempty" schema:"brief"`
	Members        []project.Member `json:"members" schema:"flat" jsonschema:"process, depends_on, arguments of start_process"`
	StartDelayMS   int              `json:"start_delay_ms,omitempty" schema:"brief" min:"0" max:"600000"`
	StopStrategy   string           `json:"stop_strategy,omitempty" schema:"brief" enum:"reverse|parallel|sequential"`
	project.Shared `schema:"brief"`
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
	Members      []groupMemberResult `json:"members"`
	Changes      []string            `json:"changes,omitempty"`
	Others       map[string]int      `json:"others,omitempty" schema:"extra"` // phases of the members for which there is no room
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

	stateText string
}

// newGroupResult returns st in the form that answers show.
func newGroupResult(st *groups.Status) groupResult {
	r := groupResult{
		Name: st.Group.Name, Description: st.Group.Description, State: string(st.State), Busy: st.Busy, Problem: st.Problem,
		StopStrategy: st.Group.StopStrategy.String(), StartDelayMS: st.Group.StartDelay.Milliseconds(), Order: []string{}, Members: []groupMemberResult{},
	}
	r.Order = append(r.Order, st.Order...) // st.Order is nil for an empty group, and the answer has []
	for _, m := range st.Members {
		member := groupMemberResult{Name: m.Process, Phase: string(m.Phase), Why: withoutInvalid(m.Why)}
		for _, d := range m.DependsOn {
			member.DependsOn = append(member.DependsOn, d.String())
		}
		if m.Known {
			p := resultOf(&project.Run{Status: m.Status})
			member.State, member.Ready, member.PID, member.Run, member.ExitCode = p.State, p.Ready, p.PID, p.Run, p.ExitCode
			member.stateText = p.stateText()
		}
		r.Members = append(r.Members, member)
	}
	return r
}

// fit shortens the group until size, which counts the whole answer, is at most limit
// bytes: first the order and the changes, then the members, those with a reason last.
func (r *groupResult) fit(limit int, size func() int) {
	if size() <= limit {
		return
	}
	r.Order, r.Changes = boundWords(r.Order, limit/4), boundWords(r.Changes, limit/4)
	all := slices.SortedStableFunc(slices.Values(r.Members), func(a, b groupMemberResult) int {
		return cmp.Compare(min(len(b.Why), 1), min(len(a.Why), 1))
	})
	r.Members = all
	if dropped := dropLast(&r.Members, limit-2*leftOutBytes, size); dropped > 0 {
		r.Others = make(map[string]int)
		for _, m := range all[len(all)-dropped:] {
			r.Others[m.Phase]++
		}
		r.Hint = prose.Join("; ", r.Hint, "list_processes with group shows the other members")
	}
}

// fitted returns the group as the answer of an action.
func (r groupResult) fitted() groupResult {
	r.fit(outputArgs{}.limit(), func() int { return answerSize(r) })
	return r
}

// boundWords returns as many of the words as fit into limit bytes, and counts the others.
func boundWords(words []string, limit int) []string {
	dropped := dropLast(&words, limit, func() (n int) {
		for _, w := range words {
			n += sizeOfString(w) + len(`"",`)
		}
		return n
	})
	if dropped > 0 {
		words = append(slices.Clip(words), fmt.Sprintf("and %d more", dropped))
	}
	return words
}

func (r groupResult) write(t *answerText) {
	t.part("group %s: %s", r.Name, r.State)
	t.optPart(", %s", r.Busy)
	t.part(", start order: %s", strings.Join(r.Order, ", "))
	t.optPart(", %d ms apart", r.StartDelayMS)
	if r.StopStrategy != groups.StopReverse.String() {
		t.part(", stopped %s", r.StopStrategy)
	}
	t.line("")
	t.optLine("  %q", r.Description)
	for _, m := range r.Members {
		t.part("  %s: %s", m.Name, m.Phase)
		if m.State != "" && m.State != m.Phase {
			t.part(" (%s)", m.stateText)
		}
		t.optPart(", %s", m.Why)
		t.optPart(", after %s", strings.Join(m.DependsOn, ", "))
		t.optPart(", pid %d", m.PID)
		t.line("")
	}
	if len(r.Others) > 0 {
		t.line("  others: %s", formatCounts(r.Others))
	}
	for _, line := range r.Changes {
		t.line("%s", line)
	}
	t.optLine("%s", r.Problem)
	t.optLine("%s", r.Hint)
}

func createGroupTool() tool {
	return define(tool{
		name: "create_group", title: "Define group", toolset: setGroups,
		description: "Defines a group; starts nothing. Also description, start_delay_ms, stop_strategy, and cwd, env, env_files of all.",
	}, createGroup)
}

func createGroup(ctx context.Context, s *call, a createGroupArgs) (groupResult, error) {
	strategy, err := groups.ParseStrategy(a.StopStrategy)
	if err != nil {
		return groupResult{}, err
	}
	g := groups.Group{Name: a.Name, Description: a.Description, StopStrategy: strategy, StartDelay: time.Duration(a.StartDelayMS) * time.Millisecond}
	st, existed, changes, err := s.project.DefineGroup(ctx, project.GroupRequest{Group: g, Members: a.Members, Shared: a.Shared})
	if err != nil {
		return groupResult{}, err
	}
	r := newGroupResult(&st)
	r.Changes = changes
	if existed && len(changes) == 0 {
		r.Hint = "it was already defined this way"
	}
	return r.fitted(), nil
}

type addToGroupArgs struct {
	Group     string               `json:"group" natural:"alias"`
	Process   string               `json:"process"`
	DependsOn []project.Dependency `json:"depends_on,omitempty" schema:"brief"`
}

func addToGroupTool() tool {
	return define(tool{
		name: "add_to_group", title: "Add to group", toolset: setGroups,
		description: "Adds a process to a group, or changes its depends_on.",
	}, func(ctx context.Context, s *call, a addToGroupArgs) (groupResult, error) {
		st, err := s.project.AddToGroup(ctx, a.Group, a.Process, a.DependsOn)
		return newGroupResult(&st).fitted(), err
	})
}

type removeFromGroupArgs struct {
	Group   string `json:"group" natural:"alias"`
	Process string `json:"process,omitempty" omitted:"the whole group is deleted"`
}

func removeFromGroupTool() tool {
	return define(tool{
		name: "remove_from_group", title: "Remove from group", toolset: setGroups,
		description: "Removes a process from a group; without process, deletes the group.",
		hints:       hints{destructive: true},
	}, func(ctx context.Context, s *call, a removeFromGroupArgs) (groupResult, error) {
		st, err := s.project.RemoveFromGroup(ctx, a.Group, a.Process)
		r := newGroupResult(&st)
		if a.Process == "" {
			r.Hint = "the group is deleted; its processes stay as they are"
		}
		return r.fitted(), err
	})
}

type listGroupsArgs struct {
	Group string `json:"group,omitempty" natural:"alias"`
}

type listGroupsResult struct {
	Groups []groupResult `json:"groups"`
	More   bool          `json:"more,omitempty"`
	Hint   string        `json:"hint,omitempty"`
}

func (r listGroupsResult) write(t *answerText) {
	for _, g := range r.Groups {
		g.write(t)
	}
	t.optLine("%s", r.Hint)
}

// fit drops groups until the answer is at most limit bytes; the first is shortened.
func (r *listGroupsResult) fit(limit int) {
	size := func() int { return answerSize(r) }
	if len(r.Groups) == 0 || size() <= limit {
		return
	}
	each := max(limit/len(r.Groups), 4*minShare)
	for i := range r.Groups {
		g := &r.Groups[i]
		g.fit(each, func() int { return answerSize(g) })
	}
	if dropped := dropLast(&r.Groups, limit-leftOutBytes, size); dropped > 0 {
		r.More, r.Hint = true, fmt.Sprintf("%d more; group selects one", dropped)
	}
}

func listGroupsTool() tool {
	return define(tool{
		name: "list_groups", title: "List groups", toolset: setGroups,
		description: "Groups with members, start order, states and reasons.",
		hints:       hints{readOnly: true},
	}, listGroups)
}

func listGroups(ctx context.Context, s *call, a listGroupsArgs) (listGroupsResult, error) {
	r := listGroupsResult{Groups: []groupResult{}}
	all, err := s.project.ListGroups(ctx, a.Group)
	for i := range all {
		r.Groups = append(r.Groups, newGroupResult(&all[i]))
	}
	if len(all) == 0 {
		r.Hint = "no groups"
	}
	r.fit(logLimit(0))
	return r, err
}
