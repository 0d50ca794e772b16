package groups

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/process"
	"pmcp/process/prose"
)

// The limits of a definition.
const (
	maxGroups      = 200
	maxMembers     = 100
	maxDescription = 4096
	maxStartDelay  = 10 * time.Minute
)

// Condition is what must hold for a process before its dependents start.
type Condition string

// The conditions. The zero value is IfReady.
const (
	// IfReady means Ready if the process has a readiness rule, else Started.
	IfReady Condition = ""
	// Started means that a run has begun.
	Started Condition = "started"
	// Ready means that the readiness rules of the process hold.
	Ready Condition = "ready"
	// Healthy means that the health check of the process succeeds.
	Healthy Condition = "healthy"
	// ExitedOK means that the process has ended with exit code 0, as a migration
	// does.
	ExitedOK Condition = "exited_ok"
)

// Strategy is the order in which a group is stopped.
type Strategy string

// The strategies. The zero value is StopReverse.
const (
	// StopReverse stops each member once all its dependents are down, as
	// concurrently as that allows.
	StopReverse Strategy = ""
	// StopParallel stops all members at once.
	StopParallel Strategy = "parallel"
	// StopSequential stops one member after the other, in start order.
	StopSequential Strategy = "sequential"
)

// ParseStrategy parses the name of a strategy; "" and "reverse" are
// StopReverse. The error wraps process.ErrInvalid.
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

// String returns the strategy's name in the tools.
func (s Strategy) String() string {
	if s == StopReverse {
		return "reverse"
	}
	return string(s)
}

// Dependency is a condition that a member waits for.
type Dependency struct {
	// Process is the name of another member of the group.
	Process string `json:"process"`
	// Condition is what must hold for Process.
	Condition Condition `json:"condition,omitempty"`
}

// String returns a form like "db (ready)".
func (d Dependency) String() string {
	if d.Condition == IfReady {
		return d.Process
	}
	return fmt.Sprintf("%s (%s)", d.Process, d.Condition)
}

// Member is a process as part of a group.
type Member struct {
	// Process is the name of the process, which may not be defined yet.
	Process string `json:"process"`
	// DependsOn lists the conditions for the start of the process. All of them
	// must hold.
	DependsOn []Dependency `json:"depends_on,omitempty"`
}

// Group is a named set of processes. A Group is a value, but copies share its
// slices, which must not be modified.
type Group struct {
	// Name is unique in the project. It follows the rules for process names.
	Name string `json:"name"`
	// Description is text for people and models, at most 4 KiB.
	Description string `json:"description,omitempty"`
	// Members are at most 100. They are listed in this order, and started in it
	// unless dependencies demand another.
	Members []Member `json:"members"`
	// StartDelay is the minimum time between the starts of two members, at most
	// 10 min.
	StartDelay time.Duration `json:"start_delay,omitempty"`
	// StopStrategy is the order of stops, unless a caller of Manager.Stop chooses
	// another.
	StopStrategy Strategy `json:"stop_strategy,omitempty"`
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{process.ErrInvalid}, args...)...)
}

// Validate returns an error wrapping process.ErrInvalid that describes what is
// wrong with the definition, or nil.
func (g Group) Validate() error {
	if err := process.CheckAddress(g.Name); err != nil {
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

// checkMembers rejects members with an invalid name or invalid dependencies, and
// members that are listed twice.
func (g Group) checkMembers() error {
	seen := make(map[string]bool, len(g.Members))
	for _, member := range g.Members {
		if err := process.CheckAddress(member.Process); err != nil {
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

// checkDependencies rejects dependencies of member that are not in members, are
// listed twice or have an unknown condition.
func (g Group) checkDependencies(member Member, members map[string]bool) error {
	seen := make(map[string]bool, len(member.DependsOn))
	for _, d := range member.DependsOn {
		switch {
		case d.Process == member.Process:
			return invalid("group %s: %s depends on itself", g.Name, member.Process)
		case !members[d.Process]:
			return invalid("group %s: %s depends on %q, which is not a member; members: %s", g.Name, member.Process, d.Process, prose.OrNone(g.names()))
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

func (g Group) member(name string) (Member, bool) {
	i := slices.IndexFunc(g.Members, func(m Member) bool { return m.Process == name })
	if i < 0 {
		return Member{}, false
	}
	return g.Members[i], true
}

// dependents returns the names of the members that depend on name.
func (g Group) dependents(name string) []string {
	var names []string
	for _, member := range g.Members {
		if slices.ContainsFunc(member.DependsOn, func(d Dependency) bool { return d.Process == name }) {
			names = append(names, member.Process)
		}
	}
	return names
}

// changes describes in sentences how g differs from old.
func (g Group) changes(old Group) []string {
	var changes []string
	add := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }
	for _, member := range g.Members {
		before, ok := old.member(member.Process)
		switch {
		case !ok:
			add("added %s", member.Process)
		case !slices.Equal(before.DependsOn, member.DependsOn):
			add("%s depends on %s (was: %s)", member.Process, listed(member.DependsOn), listed(before.DependsOn))
		}
	}
	for _, member := range old.Members {
		if _, ok := g.member(member.Process); !ok {
			add("removed %s", member.Process)
		}
	}
	if len(changes) == 0 && !slices.Equal(old.names(), g.names()) {
		add("members are listed in another order")
	}
	if old.StartDelay != g.StartDelay {
		add("start delay %s (was: %s)", g.StartDelay, old.StartDelay)
	}
	if old.StopStrategy != g.StopStrategy {
		add("stop strategy %s (was: %s)", g.StopStrategy, old.StopStrategy)
	}
	if old.Description != g.Description {
		add("new description")
	}
	return changes
}

// listed returns dependencies in a form like "db (ready), cache", or "nothing".
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

// Order returns the names of the members in start order: each member follows its
// dependencies, otherwise as listed. If the dependencies form a cycle, Order
// returns an error wrapping process.ErrInvalid that names the members of the cycle.
func (g Group) Order() ([]string, error) {
	var order []string
	placed := make(map[string]bool, len(g.Members))
	for len(order) < len(g.Members) {
		next := slices.IndexFunc(g.Members, func(m Member) bool { return !placed[m.Process] && m.isFree(placed) })
		if next < 0 {
			return nil, invalid("group %s: the dependencies form a cycle: %s", g.Name, strings.Join(g.cycle(placed), " → "))
		}
		name := g.Members[next].Process
		placed[name] = true
		order = append(order, name)
	}
	return order, nil
}

func (m Member) isFree(placed map[string]bool) bool {
	return !slices.ContainsFunc(m.DependsOn, func(d Dependency) bool { return !placed[d.Process] })
}

// cycle follows dependencies from one unplaced member to the next until a
// member repeats, and returns the cycle.
func (g Group) cycle(placed map[string]bool) []string {
	var path []string
	name := g.Members[slices.IndexFunc(g.Members, func(m Member) bool { return !placed[m.Process] })].Process
	for {
		if at := slices.Index(path, name); at >= 0 {
			return append(path[at:], name)
		}
		path = append(path, name)
		member, _ := g.member(name)
		next := slices.IndexFunc(member.DependsOn, func(d Dependency) bool { return !placed[d.Process] })
		name = member.DependsOn[next].Process
	}
}
