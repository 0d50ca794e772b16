package groups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Save writes a definition. existed says that there was one of that name, which
// it replaces; changes are sentences on what that changes. An operation under
// way goes on with the definition it began with, but starts no process that is no
// member any more. Its error wraps process.ErrInvalid.
func (m *Manager) Save(ctx context.Context, g Group) (existed bool, changes []string, err error) {
	if err := g.Validate(); err != nil {
		return false, nil, err
	}
	m.edit.Lock()
	defer m.edit.Unlock()
	all, err := m.load(ctx)
	if err != nil {
		return false, nil, err
	}
	old, existed := all[g.Name]
	if !existed && len(all) >= maxGroups {
		return false, nil, invalid("the project has %d groups, which is all there can be: remove one first", len(all))
	}
	if existed {
		changes = g.changes(old.Group)
	}
	return existed, changes, m.write(g)
}

// Add makes member part of the group called name. If it is one already it gets
// other dependencies, or with nil DependsOn keeps those it has. Where there is
// no such group create makes it. Its error wraps process.ErrInvalid or ErrUnknown.
func (m *Manager) Add(ctx context.Context, name string, member Member, create bool) (Group, error) {
	return m.update(ctx, name, create, adding(member))
}

// CheckAdd answers the error that Add would, and changes nothing.
func (m *Manager) CheckAdd(ctx context.Context, name string, member Member, create bool) error {
	m.edit.Lock()
	defer m.edit.Unlock()
	_, err := m.changed(ctx, name, create, adding(member))
	return err
}

// adding is the change that Add makes.
func adding(member Member) func(*Group) error {
	return func(g *Group) error {
		i := slices.IndexFunc(g.Members, func(old Member) bool { return old.Process == member.Process })
		switch {
		case i < 0:
			g.Members = append(g.Members, member)
		case member.DependsOn != nil:
			g.Members[i] = member
		}
		return nil
	}
}

// Remove takes a process out of the group called name; the process itself stays
// as it is. One that others depend on is not removed. Its error wraps
// process.ErrInvalid or ErrUnknown.
func (m *Manager) Remove(ctx context.Context, name, process string) (Group, error) {
	return m.update(ctx, name, false, func(g *Group) error {
		if _, ok := g.member(process); !ok {
			return fmt.Errorf("%w member: %s is not in group %s; members: %s", ErrUnknown, process, name, strings.Join(g.names(), ", "))
		}
		if by := g.dependents(process); len(by) > 0 {
			return invalid("group %s: %s depends on %s; change that first", name, strings.Join(by, ", "), process)
		}
		g.Members = slices.DeleteFunc(g.Members, func(member Member) bool { return member.Process == process })
		return nil
	})
}

// Delete forgets the group called name; its processes stay as they are. Its
// error wraps ErrUnknown.
func (m *Manager) Delete(ctx context.Context, name string) error {
	m.edit.Lock()
	defer m.edit.Unlock()
	if _, err := m.find(ctx, name, false); err != nil {
		return err
	}
	m.o.Journal.SaveGroup(m.o.Project, name, nil)
	m.forgetOperation(name)
	return nil
}

// Group returns the definition called name. Its error wraps ErrUnknown.
func (m *Manager) Group(ctx context.Context, name string) (Group, error) {
	found, err := m.find(ctx, name, false)
	if err != nil {
		return Group{}, err
	}
	return found.Group, found.usable()
}

// update rewrites one definition.
func (m *Manager) update(ctx context.Context, name string, create bool, change func(*Group) error) (Group, error) {
	m.edit.Lock()
	defer m.edit.Unlock()
	g, err := m.changed(ctx, name, create, change)
	if err != nil {
		return Group{}, err
	}
	return g, m.write(g)
}

// changed is the group called name as change would make it, checked. Called with
// m.edit held.
func (m *Manager) changed(ctx context.Context, name string, create bool, change func(*Group) error) (Group, error) {
	found, err := m.find(ctx, name, create)
	if err != nil {
		return Group{}, err
	}
	if err := found.usable(); err != nil {
		return Group{}, err
	}
	g := found.Group
	g.Members = slices.Clone(g.Members)
	if err := change(&g); err != nil {
		return Group{}, err
	}
	return g, g.Validate()
}

func (m *Manager) write(g Group) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return fmt.Errorf("cannot store group %s: %w", g.Name, err)
	}
	m.o.Journal.SaveGroup(m.o.Project, g.Name, raw)
	return nil
}

// definition is a Group as it was read; problem says why it cannot be used, ""
// if it can.
type definition struct {
	Group
	problem string
}

func (d definition) usable() error {
	if d.problem != "" {
		return errors.New(d.problem)
	}
	return nil
}

// load reads every definition of the project. One that this version cannot read
// spoils nothing but itself.
func (m *Manager) load(ctx context.Context) (map[string]definition, error) {
	rows, err := m.o.Journal.Groups(ctx, m.o.Project)
	if err != nil {
		return nil, fmt.Errorf("cannot read the groups of the project: %w", err)
	}
	all := make(map[string]definition, len(rows))
	for name, raw := range rows {
		var d definition
		err := json.Unmarshal(raw, &d.Group)
		d.Name = name
		if err == nil {
			err = d.Validate()
		}
		if err != nil {
			d = definition{Group: Group{Name: name}, problem: fmt.Sprintf("the stored definition of group %s cannot be used: %v; create it anew", name, err)}
		}
		all[name] = d
	}
	return all, nil
}

// find reads the definition called name; with create a missing one is empty.
func (m *Manager) find(ctx context.Context, name string, create bool) (definition, error) {
	all, err := m.load(ctx)
	if err != nil {
		return definition{}, err
	}
	d, ok := all[name]
	switch {
	case ok:
		return d, nil
	case create && len(all) < maxGroups:
		return definition{Group: Group{Name: name}}, nil
	case create:
		return definition{}, invalid("the project has %d groups, which is all there can be: remove one first", len(all))
	case len(all) == 0:
		return definition{}, fmt.Errorf("%w: %q; the project has none", ErrUnknown, name)
	}
	return definition{}, fmt.Errorf("%w: %q; groups: %s", ErrUnknown, name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}
