package project

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/groups"
)

func (p *Project) groupNames(ctx context.Context) ([]string, error) {
	all, err := p.o.Store.Groups(ctx, p.name)
	return slices.Sorted(maps.Keys(all)), err
}

// Group returns the address of the group that name stands for: that of p or, if the call
// only reads and names no project, of the only project of the session that has it.
// Whether there is such a group, the caller finds out.
func (p *Project) Group(ctx context.Context, name string, reads bool) (string, error) {
	own := p.o.Store.address(p.name, name)
	if !strings.Contains(name, "@") && len(p.o.Store.projects()) == 1 {
		return own, nil
	}
	known, err := p.groupNames(ctx)
	if err != nil || slices.Contains(known, own) {
		return own, err
	}
	if labelled, err := p.labelled(ctx, name); labelled != "" || err != nil {
		return labelled, err
	}
	elsewhere, err := p.inOtherProject(name, known, reads, groups.ErrUnknown)
	return cmp.Or(elsewhere, own), err
}

// memberAddress returns the address of a process that is named as a member of a group
// of p. It may not exist.
func (p *Project) memberAddress(ctx context.Context, name string) (string, error) {
	address, err := p.NewAddress(ctx, name, p.Names)
	if err == nil && p.of(address).name != p.name {
		err = fmt.Errorf("argument members: %s is not in the project of the group; a group has processes of its own project only", address)
	}
	return address, err
}

// addressMembers returns the arguments of def that name a group and processes with
// their addresses in p.
func (p *Project) addressMembers(ctx context.Context, def Definition) (_ Definition, err error) {
	if def.Group != "" {
		if def.Group, err = p.NewAddress(ctx, def.Group, p.groupNames); err != nil {
			return def, fmt.Errorf("argument group: %w", err)
		}
		if p.of(def.Group).name != p.name {
			return def, fmt.Errorf("argument group: %s is in another project than the process", def.Group)
		}
	}
	def.DependsOn = slices.Clone(def.DependsOn)
	for i := range def.DependsOn {
		d := &def.DependsOn[i]
		if d.Process, err = p.memberAddress(ctx, d.Process); err != nil {
			return def, err
		}
	}
	return def, nil
}
