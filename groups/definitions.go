package groups

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"pmcp/process/prose"
)

// definitions are the definitions of one project. They are read from the Journal
// each time, because another session of the project may write them.
type definitions struct {
	journal Journal
	project string
	editing sync.Mutex // held from reading a definition to writing it
}

// Save writes a definition. existed reports whether it replaces one of that
// name; changes describes the differences in sentences. An operation in
// progress continues with the definition that it began with, but does not start
// processes that are no longer members. The error wraps process.ErrInvalid.
func (d *definitions) Save(ctx context.Context, g Group) (existed bool, changes []string, err error) {
	if err := g.Validate(); err != nil {
		return false, nil, err
	}
	d.editing.Lock()
	defer d.editing.Unlock()
	old, err := d.find(ctx, g.Name, true)
	if err != nil {
		return false, nil, err
	}
	if old.stored {
		changes = g.changes(old.Group)
	}
	return old.stored, changes, d.write(g)
}

// Add makes member part of the group called name. If member is already part of
// it, Add replaces its dependencies, or keeps them if DependsOn is nil. If there
// is no such group and create is set, Add creates the group. The error wraps
// process.ErrInvalid or ErrUnknown.
func (d *definitions) Add(ctx context.Context, name string, member Member, create bool) (Group, error) {
	return d.edit(ctx, name, create, d.write, addMember(member))
}

// CheckAdd returns the error that Add would return, without changing anything.
func (d *definitions) CheckAdd(ctx context.Context, name string, member Member, create bool) error {
	_, err := d.edit(ctx, name, create, func(Group) error { return nil }, addMember(member))
	return err
}

// addMember returns the change that Add makes.
func addMember(member Member) func(*Group) error {
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

// Remove takes a process out of the group called name, without affecting the
// process. A member that others depend on is not removed. The error wraps
// process.ErrInvalid or ErrUnknown.
func (d *definitions) Remove(ctx context.Context, name, process string) (Group, error) {
	return d.edit(ctx, name, false, d.write, func(g *Group) error {
		if _, ok := g.member(process); !ok {
			return fmt.Errorf("%w member: %s is not in group %s; members: %s", ErrUnknown, process, name, prose.OrNone(g.names()))
		}
		if by := g.dependents(process); len(by) > 0 {
			return invalid("group %s: %s depends on %s; change that first", name, strings.Join(by, ", "), process)
		}
		g.Members = slices.DeleteFunc(g.Members, func(member Member) bool { return member.Process == process })
		return nil
	})
}

// Delete deletes the group called name, without affecting its processes. The
// error wraps ErrUnknown.
func (m *Manager) Delete(ctx context.Context, name string) error {
	m.editing.Lock()
	defer m.editing.Unlock()
	if _, err := m.find(ctx, name, false); err != nil {
		return err
	}
	m.journal.SaveGroup(m.project, name, nil)
	m.deleteOperation(name)
	return nil
}

// Group returns the definition called name. The error wraps ErrUnknown.
func (d *definitions) Group(ctx context.Context, name string) (Group, error) {
	found, err := d.find(ctx, name, false)
	if err != nil {
		return Group{}, err
	}
	return found.Group, found.err
}

// edit applies change to the group called name, validates the result, passes it to
// write and returns it.
func (d *definitions) edit(ctx context.Context, name string, create bool, write func(Group) error, change func(*Group) error) (Group, error) {
	d.editing.Lock()
	defer d.editing.Unlock()
	found, err := d.find(ctx, name, create)
	if err == nil {
		err = found.err
	}
	if err != nil {
		return Group{}, err
	}
	g := found.Group
	g.Members = slices.Clone(g.Members)
	if err := change(&g); err != nil {
		return Group{}, err
	}
	if err := g.Validate(); err != nil {
		return Group{}, err
	}
	return g, write(g)
}

// write hands g to the Journal.
func (d *definitions) write(g Group) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return fmt.Errorf("cannot store group %s: %w", g.Name, err)
	}
	d.journal.SaveGroup(d.project, g.Name, raw)
	return nil
}

// definition is a Group as it was read.
type definition struct {
	Group
	stored bool  // whether the Journal has the definition
	err    error // why the stored definition cannot be used
}

// load reads every definition of the project. A definition that this version
// cannot read does not affect the others.
func (d *definitions) load(ctx context.Context) (map[string]definition, error) {
	rows, err := d.journal.Groups(ctx, d.project)
	if err != nil {
		return nil, fmt.Errorf("cannot read the groups of the project: %w", err)
	}
	all := make(map[string]definition, len(rows))
	for name, raw := range rows {
		read := definition{stored: true}
		err := json.Unmarshal(raw, &read.Group)
		read.Name = name
		if err == nil {
			err = read.Validate()
		}
		if err != nil {
			read.Group = Group{Name: name}
			read.err = fmt.Errorf("the stored definition of group %s cannot be used: %w; create it again", name, err)
		}
		all[name] = read
	}
	return all, nil
}

// find reads the definition called name. If it is missing and create is set,
// find returns an empty one. The error wraps process.ErrInvalid or ErrUnknown.
func (d *definitions) find(ctx context.Context, name string, create bool) (definition, error) {
	all, err := d.load(ctx)
	if err != nil {
		return definition{}, err
	}
	found, ok := all[name]
	switch {
	case ok:
		return found, nil
	case create && len(all) < maxGroups:
		return definition{Group: Group{Name: name}}, nil
	case create:
		return definition{}, invalid("the project has %d groups, the maximum: remove one first", len(all))
	case len(all) == 0:
		return definition{}, fmt.Errorf("%w: %q; the project has none", ErrUnknown, name)
	}
	return definition{}, fmt.Errorf("%w: %q; groups: %s", ErrUnknown, name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}
