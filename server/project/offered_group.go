package project

import (
	"context"
	"errors"
	"slices"

	"pmcp/groups"
	"pmcp/server/offered"
)

// TakeOfferedGroup defines the group that a Procfile is: name is its file. The group gets the
// lines that it does not have yet; members that it has keep their definitions and dependencies.
// If there is no such file, nothing changes. changes are sentences on what has changed in a
// group that was there, and on lines that say something else than the definition.
func (p *Project) TakeOfferedGroup(ctx context.Context, name string) (changes []string, err error) {
	_, bare := p.o.Store.split(p.name, name)
	if !offered.IsProcfile(bare) {
		return nil, nil
	}
	address, err := p.NewAddress(ctx, name, p.groupNames)
	if err != nil {
		return nil, nil //nolint:nilerr // a start reports it
	}
	p = p.of(address)
	group, err := p.o.Groups.Group(ctx, address)
	if err != nil && !errors.Is(err, groups.ErrUnknown) {
		return nil, err
	}
	members, changes := p.procfileMembers(ctx, bare, group)
	if len(members) == 0 {
		return changes, nil
	}
	for _, m := range slices.Backward(group.Members) {
		members = slices.Insert(members, 0, memberOf(m))
	}
	changed, err := p.ChangeGroup(ctx, address, members, Shared{})
	return append(changed, changes...), err
}

// procfileMembers returns the lines of a Procfile that are not yet members of group. changes
// names the lines whose member runs something else.
func (p *Project) procfileMembers(ctx context.Context, file string, group groups.Group) (members []Member, changes []string) {
	offer := p.offer("")
	for i, own := range p.offeredNames(ctx, offer) {
		program := &offer.Programs[i]
		if program.Source != file {
			continue
		}
		is := func(name string) func(groups.Member) bool {
			return func(m groups.Member) bool { return m.Process == p.o.Store.address(p.name, name) }
		}
		name := ""
		for _, known := range []string{program.Name, program.Qualified} {
			if name == "" && slices.ContainsFunc(group.Members, is(known)) {
				name = known
			}
		}
		if name != "" {
			if changed := p.changedOffer(ctx, p.o.Store.address(p.name, name)); changed != "" {
				changes = append(changes, changed)
			}
			continue
		}
		m := Member{Process: own, Definition: definitionOf(program)}
		if known, err := p.isDefined(ctx, p.o.Store.address(p.name, m.Process)); known && err == nil {
			m.Definition = Definition{}
		}
		members = append(members, m)
	}
	return members, changes
}

// memberOf returns a member that a group has as a request that changes nothing.
func memberOf(m groups.Member) Member {
	member := Member{Process: m.Process}
	for _, d := range m.DependsOn {
		member.DependsOn = append(member.DependsOn, Dependency{d.Process, string(d.Condition)})
	}
	return member
}
