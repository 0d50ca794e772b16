package groups

import (
	"slices"
	"strings"
)

// Order is the members in an order in which each comes after what it depends
// on, otherwise as listed. A cycle is answered with an error wrapping
// process.ErrInvalid that names it.
func (g Group) Order() ([]string, error) {
	var order []string
	placed := make(map[string]bool, len(g.Members))
	for len(order) < len(g.Members) {
		next := slices.IndexFunc(g.Members, func(m Member) bool { return !placed[m.Process] && m.free(placed) })
		if next < 0 {
			return nil, invalid("group %s: the dependencies go in a circle: %s", g.Name, strings.Join(g.cycle(placed), " → "))
		}
		name := g.Members[next].Process
		placed[name] = true
		order = append(order, name)
	}
	return order, nil
}

// free says whether everything that m depends on is placed.
func (m Member) free(placed map[string]bool) bool {
	return !slices.ContainsFunc(m.DependsOn, func(d Dependency) bool { return !placed[d.Process] })
}

// cycle walks from one unplaced member to the next, each of which depends on
// another, until it meets one again.
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
