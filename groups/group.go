package groups

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/process"
)

// Bounds of definitions.
const (
	maxGroups      = 200
	maxMembers     = 100
	maxDescription = 4096
	maxStartDelay  = 10 * time.Minute
)

// Condition is what must hold of a process before what depends on it starts.
type Condition string

// The conditions. The zero value is IfReady.
const (
	// IfReady is Ready where the process has a readiness rule, else Started.
	IfReady Condition = ""
	// Started: a run has begun.
	Started Condition = "started"
	// Ready: its readiness rules hold.
	Ready Condition = "ready"
	// Healthy: its health check succeeds.
	Healthy Condition = "healthy"
	// ExitedOK: it has ended with exit code 0, as a migration does.
	ExitedOK Condition = "exited_ok"
)

// Strategy is the order in which a group is stopped.
type Strategy string

// The strategies. The zero value is StopReverse.
const (
	// StopReverse stops each member once everything that depends on it is down,
	// as much at once as that allows.
	StopReverse Strategy = ""
	// StopParallel stops all at once.
	StopParallel Strategy = "parallel"
	// StopSequential stops one after the other, in the order of starting.
	StopSequential Strategy = "sequential"
)

// ParseStrategy reads the name of a strategy; "" and "reverse" are StopReverse.
// Its error wraps process.ErrInvalid.
func ParseStrategy(name string) (Strategy, error) {
	switch s := Strategy(name); s {
	case "reverse":
		return StopReverse, nil
	case StopReverse, StopParallel, StopSequential:
		return s, nil
	default:
		return "", invalid("stop strategy %q: want reverse, parallel or sequential", name)
	}
}

// String gives the strategy's name in the tools.
func (s Strategy) String() string {
	if s == StopReverse {
		return "reverse"
	}
	return string(s)
}

// Dependency is one thing that a member waits for.
type Dependency struct {
	// Process is another member of the group.
	Process string `json:"process"`
	// Condition is what must hold of it.
	Condition Condition `json:"condition,omitempty"`
}

// String reads "db (ready)".
func (d Dependency) String() string {
	if d.Condition == IfReady {
		return d.Process
	}
	return fmt.Sprintf("%s (%s)", d.Process, d.Condition)
}

// Member is one process of a group.
type Member struct {
	// Process is its name. It may have no definition yet.
	Process string `json:"process"`
	// DependsOn are the conditions for its start, all of which must hold.
	DependsOn []Dependency `json:"depends_on,omitempty"`
}

// Group is a named set of processes. It is a value: who is given one shares its
// slices and must not change them.
type Group struct {
	// Name is unique in the project; the rules for names of processes hold.
	Name string `json:"name"`
	// Description is text for people and models, at most 4 KiB.
	Description string `json:"description,omitempty"`
	// Members are at most 100, in the order in which they are listed and, where
	// dependencies do not say otherwise, started.
	Members []Member `json:"members"`
	// StartDelay is the least time between the starts of two members; at most
	// 10 min.
	StartDelay time.Duration `json:"start_delay,omitempty"`
	// StopStrategy is how the group is stopped unless a call says otherwise.
	StopStrategy Strategy `json:"stop_strategy,omitempty"`
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{process.ErrInvalid}, args...)...)
}

// Validate answers an error wrapping process.ErrInvalid that names what is
// wrong with the definition, or nil.
func (g Group) Validate() error {
	if err := process.CheckName(g.Name); err != nil {
		return err
	}
	switch {
	case len(g.Members) > maxMembers:
		return invalid("group %s: %d members, at most %d are allowed", g.Name, len(g.Members), maxMembers)
	case len(g.Description) > maxDescription:
		return invalid("group %s: the description takes %d bytes, at most %d are allowed", g.Name, len(g.Description), maxDescription)
	case g.StartDelay < 0 || g.StartDelay > maxStartDelay:
		return invalid("group %s: start_delay_ms: %s, want 0 to %s", g.Name, g.StartDelay, maxStartDelay)
	}
	if _, err := ParseStrategy(string(g.StopStrategy)); err != nil {
		return err
	}
	if err := g.checkMembers(); err != nil {
		return err
	}
	_, err := g.Order()
	return err
}

func (g Group) checkMembers() error {
	seen := make(map[string]bool, len(g.Members))
	for _, member := range g.Members {
		if err := process.CheckName(member.Process); err != nil {
			return err
		}
		if seen[member.Process] {
			return invalid("group %s: %s is a member twice", g.Name, member.Process)
		}
		seen[member.Process] = true
	}
	for _, member := range g.Members {
		if err := g.checkDependencies(member, seen); err != nil {
			return err
		}
	}
	return nil
}

func (g Group) checkDependencies(member Member, members map[string]bool) error {
	seen := make(map[string]bool, len(member.DependsOn))
	for _, d := range member.DependsOn {
		switch {
		case d.Process == member.Process:
			return invalid("group %s: %s depends on itself", g.Name, member.Process)
		case !members[d.Process]:
			return invalid("group %s: %s depends on %q, which is no member; members: %s", g.Name, member.Process, d.Process, strings.Join(g.names(), ", "))
		case seen[d.Process]:
			return invalid("group %s: %s depends on %s twice", g.Name, member.Process, d.Process)
		case !slices.Contains([]Condition{IfReady, Started, Ready, Healthy, ExitedOK}, d.Condition):
			return invalid("group %s: %s depends on %s with condition %q: want started, ready, healthy or exited_ok", g.Name, member.Process, d.Process, string(d.Condition))
		}
		seen[d.Process] = true
	}
	return nil
}

func (g Group) names() []string {
	names := make([]string, len(g.Members))
	for i, member := range g.Members {
		names[i] = member.Process
	}
	return names
}

// member returns the member called name.
func (g Group) member(name string) (Member, bool) {
	i := slices.IndexFunc(g.Members, func(m Member) bool { return m.Process == name })
	if i < 0 {
		return Member{}, false
	}
	return g.Members[i], true
}

// dependents are the names of the members that depend on name.
func (g Group) dependents(name string) []string {
	var names []string
	for _, member := range g.Members {
		if slices.ContainsFunc(member.DependsOn, func(d Dependency) bool { return d.Process == name }) {
			names = append(names, member.Process)
		}
	}
	return names
}

// changes says in sentences what differs in g from old.
func (g Group) changes(old Group) []string {
	var changes []string
	note := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }
	for _, member := range g.Members {
		before, ok := old.member(member.Process)
		switch {
		case !ok:
			note("added %s", member.Process)
		case !slices.Equal(before.DependsOn, member.DependsOn):
			note("%s depends on %s (was: %s)", member.Process, listed(member.DependsOn), listed(before.DependsOn))
		}
	}
	for _, member := range old.Members {
		if _, ok := g.member(member.Process); !ok {
			note("removed %s", member.Process)
		}
	}
	if len(changes) == 0 && !slices.Equal(old.names(), g.names()) {
		note("members are listed in another order")
	}
	if old.StartDelay != g.StartDelay {
		note("start delay %s (was: %s)", g.StartDelay, old.StartDelay)
	}
	if old.StopStrategy != g.StopStrategy {
		note("stop strategy %s (was: %s)", g.StopStrategy, old.StopStrategy)
	}
	if old.Description != g.Description {
		note("new description")
	}
	return changes
}

// listed reads "db (ready), cache", or "nothing".
func listed(dependencies []Dependency) string {
	if len(dependencies) == 0 {
		return "nothing"
	}
	words := make([]string, len(dependencies))
	for i, d := range dependencies {
		words[i] = d.String()
	}
	return strings.Join(words, ", ")
}
