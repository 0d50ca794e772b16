package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"pmcp/groups"
	"pmcp/process"
)

// A Member is a member of a group in a request, with any arguments that set or
// change its definition.
type Member struct {
	Process    string `json:"process"`
	Definition `schema:"brief"`
}

// Shared are arguments for all members in a request. They become part of the
// definition of each member that does not set them itself.
type Shared struct {
	Cwd      string             `json:"cwd,omitempty"`
	Env      map[string]*string `json:"env,omitempty"`
	EnvFiles []string           `json:"env_files,omitempty"`
}

// IsEmpty reports whether a sets nothing.
func (a Shared) IsEmpty() bool { return a.Cwd == "" && len(a.Env) == 0 && len(a.EnvFiles) == 0 }

// below returns def, the definition of a member, with the arguments in a that it does
// not set. given is what the request has for the member: what is null there stays
// unset. kept are the arguments in which def differs from a and given is silent:
// the stored definition has them.
func (a Shared) below(def, given Definition) (_ Definition, kept []string) {
	def = def.clone()
	for _, key := range slices.Sorted(maps.Keys(a.Env)) {
		value, own := a.Env[key], def.Env[key]
		_, set := given.Env[key]
		set = set || slices.Contains(given.Removed, "env")
		switch {
		case set || value == nil:
		case own == nil:
			def.addEnv(map[string]string{key: *value})
		case *own != *value:
			kept = append(kept, "env "+key)
		}
	}
	if def.Cwd == "" && !slices.Contains(given.Removed, "cwd") {
		def.Cwd = a.Cwd
	} else if def.Cwd != "" && a.Cwd != "" && given.Cwd == "" && def.Cwd != a.Cwd {
		kept = append(kept, "cwd")
	}
	if len(def.EnvFiles) == 0 && !slices.Contains(given.Removed, "env_files") {
		def.EnvFiles = a.EnvFiles
	} else if len(def.EnvFiles) > 0 && len(a.EnvFiles) > 0 && len(given.EnvFiles) == 0 && !slices.Equal(def.EnvFiles, a.EnvFiles) {
		kept = append(kept, "env_files")
	}
	return def, kept
}

// A GroupRequest is what a call that defines a group asks for.
type GroupRequest struct {
	groups.Group // without members
	Members      []Member
	Shared       Shared
}

// DefineGroup defines or redefines a group with the given members, and saves the
// definitions that they carry. It checks everything before it writes anything.
// changes are sentences on what has changed in an existing group and in existing
// definitions, and on what the members keep.
func (p *Project) DefineGroup(ctx context.Context, a GroupRequest) (st groups.Status, existed bool, changes []string, err error) {
	g, members := a.Group, slices.Clone(a.Members)
	if g.Name, err = p.NewAddress(ctx, g.Name, p.groupNames); err != nil {
		return st, false, nil, err
	}
	p = p.of(g.Name)
	for i := range members {
		m := &members[i]
		m.Cwd = p.memberCwd(m.Cwd)
		if m.Process, err = p.memberAddress(ctx, m.Process); err != nil {
			return st, false, nil, err
		}
		if m.Definition, err = p.addressMembers(ctx, m.Definition); err != nil {
			return st, false, nil, err
		}
		if err := p.memberOffered(ctx, m, p.memberCwd(a.Shared.Cwd)); err != nil {
			return st, false, nil, err
		}
		if m.Group != "" && m.Group != g.Name {
			return st, false, nil, fmt.Errorf("argument members: %s: group: it joins %s; add_to_group adds it to %s", m.Process, g.Name, m.Group)
		}
		g.Members = append(g.Members, m.member(m.Process))
	}
	if err := g.Validate(); err != nil {
		return st, false, nil, err
	}
	p.exempt(g.Name)
	for _, m := range members {
		p.exempt(m.Process)
	}
	defined := make([]*Definition, len(members)) // nil for a member that the request only names
	var kept []string
	for i, m := range members {
		def, keeps, err := p.memberDefinition(ctx, "members", m, a.Shared)
		if err != nil {
			return st, false, nil, err
		}
		if len(def.DependsOn) == 0 { // what it depends on may create its directory
			if err := process.CheckDir(Definition{Cwd: p.line(&def).Dir}.dir(def.Cwd), p.name); err != nil {
				return st, false, nil, fmt.Errorf("argument members: %s: %w", m.Process, err)
			}
		}
		if len(m.ungrouped().Arguments()) > 0 || len(m.Removed) > 0 || !a.Shared.IsEmpty() {
			defined[i] = &def
		}
		if len(keeps) > 0 {
			kept = append(kept, fmt.Sprintf("%s keeps its own %s", m.Process, strings.Join(keeps, ", ")))
		}
	}
	existed, changes, err = p.o.Groups.Save(ctx, g)
	if err != nil {
		return st, false, nil, err
	}
	for i, def := range defined {
		if def != nil {
			changes = append(changes, p.definitionChanges(ctx, members[i].Process, def.ungrouped())...)
			p.saveDefinition(members[i].Process, *def)
		}
	}
	st, err = p.o.Groups.Status(ctx, g.Name)
	return st, existed, append(changes, kept...), err
}

// memberCwd returns the cwd of a member as it is used in p. A relative cwd that leads into
// p from the session's own project counts from there, as that of a call does.
func (p *Project) memberCwd(cwd string) string {
	own := p.o.Manager.Project()
	if cwd == "" || p.isOwn() || process.IsNoProject(own) {
		return cwd
	}
	dir := Definition{Cwd: cwd}.dir(own)
	if path, err := projectOf(own, dir); err != nil || path != p.name {
		return cwd
	}
	return dir
}

// ChangeGroup is DefineGroup for a request that sets only members: it keeps the other
// settings of an existing group.
func (p *Project) ChangeGroup(ctx context.Context, name string, members []Member, shared Shared) (changes []string, err error) {
	g := groups.Group{Name: name}
	if address, err := p.NewAddress(ctx, name, p.groupNames); err == nil {
		if known, err := p.o.Groups.Group(ctx, address); err == nil { // else it is unknown or unusable, or DefineGroup fails as well
			g = known
		}
	}
	g.Members = nil
	_, _, changes, err = p.DefineGroup(ctx, GroupRequest{Group: g, Members: members, Shared: shared})
	return changes, err
}

// memberDefinition returns the definition that a member is started with: the
// arguments in m, merged over the stored definition if m has no command, over those in
// shared. kept are the arguments that the stored definition has and shared has
// differently. It fails if the member could not be started because its definition is
// invalid or missing. argument is the argument of the call that names the member.
func (p *Project) memberDefinition(ctx context.Context, argument string, m Member, shared Shared) (def Definition, kept []string, err error) {
	def = m.Definition
	if def.Command == "" {
		if def, err = p.merge(ctx, m.Process, def); err != nil {
			return def, nil, err
		}
		if def.Command == "" {
			return def, nil, fmt.Errorf("argument %s: %s has no command, and no definition of that name is stored; start_process with a command gives it one", argument, m.Process)
		}
	}
	def, kept = shared.below(def.withoutFalse(), m.Definition)
	def.readLines(p.name)
	spec, err := p.Spec(m.Process, def, false)
	if err == nil {
		err = spec.Validate()
	}
	if err == nil {
		_, err = p.withLikelyPorts(m.Process, def).healthSpec(def.dir(p.name), p.o.Manager.AllowsAny())
	}
	if err != nil {
		return def, nil, fmt.Errorf("argument %s: %s: %w", argument, m.Process, err)
	}
	return def, kept, nil
}

// definitionChanges returns a sentence on what def changes in the existing definition
// of name. It returns nil if there is no definition or def is the same.
func (p *Project) definitionChanges(ctx context.Context, name string, def Definition) []string {
	old, ok, err := p.Definition(ctx, name)
	if err != nil || !ok {
		return nil // an unreadable definition is replaced
	}
	fields := def.differingArguments(old)
	if len(fields) == 0 {
		return nil
	}
	text := fmt.Sprintf("changed %s: %s", name, strings.Join(fields, ", "))
	p.freshen(ctx, []string{name})
	if run, err := p.Find(ctx, name); err == nil && run.State.Live() { // here or in another window
		text += " (it runs as before until it is restarted)"
	}
	return []string{text}
}

// AddToGroup adds a process to an existing group, or changes its dependencies.
func (p *Project) AddToGroup(ctx context.Context, group, name string, dependsOn []Dependency) (st groups.Status, err error) {
	if group, err = p.Group(ctx, group, false); err != nil {
		return st, err
	}
	p = p.of(group)
	if name, err = p.memberAddress(ctx, name); err != nil {
		return st, err
	}
	def, err := p.addressMembers(ctx, Definition{DependsOn: dependsOn})
	if err != nil {
		return st, err
	}
	if st, err = p.o.Groups.Status(ctx, group); err != nil {
		return st, err
	}
	if _, _, err = p.memberDefinition(ctx, "process", Member{Process: name}, Shared{}); err != nil {
		return st, err
	}
	if _, err = p.o.Groups.Add(ctx, group, def.member(name), false); err != nil {
		return st, err
	}
	return p.o.Groups.Status(ctx, group)
}

// RemoveFromGroup removes a process from a group. If name is "", it deletes the group
// and returns its last status.
func (p *Project) RemoveFromGroup(ctx context.Context, group, name string) (st groups.Status, err error) {
	if group, err = p.Group(ctx, group, false); err != nil {
		return st, err
	}
	if name == "" {
		if st, err = p.o.Groups.Status(ctx, group); err == nil {
			err = p.o.Groups.Delete(ctx, group)
		}
		return st, err
	}
	p = p.of(group)
	if name, err = p.memberAddress(ctx, name); err != nil {
		return st, err
	}
	if _, err := p.o.Groups.Remove(ctx, group, name); err != nil {
		return st, err
	}
	return p.o.Groups.Status(ctx, group)
}

// ListGroups returns the status of one group or, if name is "", of all groups of the
// session, or of p if the call names it.
func (p *Project) ListGroups(ctx context.Context, name string) ([]groups.Status, error) {
	if name == "" {
		all, err := p.o.Groups.List(ctx)
		if p.chosen {
			all = slices.DeleteFunc(all, func(st groups.Status) bool { return p.of(st.Group.Name).name != p.name })
		}
		return all, err
	}
	name, err := p.Group(ctx, name, true)
	if err != nil {
		return []groups.Status{{}}, err
	}
	st, err := p.o.Groups.Status(ctx, name)
	return []groups.Status{st}, err
}

// StartGroup starts the members of a group, each as StartMember does.
func (p *Project) StartGroup(ctx context.Context, name string, o groups.StartOptions) (groups.Report, error) {
	name, err := p.Group(ctx, name, false)
	if err != nil {
		return groups.Report{}, err
	}
	release, err := p.of(name).reserveGroup(ctx, name, o.RestartRunning)
	if err != nil {
		return groups.Report{}, err
	}
	o.Ended = release
	report, err := p.o.Groups.Start(ctx, name, p, o)
	if err != nil { // it was not begun
		release()
	}
	return report, err
}

// StopGroup stops the members of a group.
func (p *Project) StopGroup(ctx context.Context, name string, o groups.StopOptions) (groups.Report, error) {
	name, err := p.Group(ctx, name, false)
	if err != nil {
		return groups.Report{}, err
	}
	defer p.endStoppedWatches()
	o.Actor = p.by
	return p.o.Groups.Stop(ctx, name, o)
}

func (a Definition) member(name string) groups.Member {
	m := groups.Member{Process: name}
	for _, d := range a.DependsOn {
		m.DependsOn = append(m.DependsOn, groups.Dependency{Process: d.Process, Condition: groups.Condition(d.Condition)})
	}
	return m
}

// checkJoin returns an error if the process cannot join the group that def names.
// It must be called before anything is started.
func (p *Project) checkJoin(ctx context.Context, name string, def Definition) error {
	switch {
	case def.Group != "":
		return p.o.Groups.CheckAdd(ctx, def.Group, def.member(name), true)
	case len(def.DependsOn) > 0: // no group would obey it
		return fmt.Errorf("argument depends_on: it works only with group; give group too, or use add_to_group")
	}
	return nil
}

// joinGroup adds a process that was started with the group argument to that group.
func (p *Project) joinGroup(ctx context.Context, name string, def Definition) error {
	if def.Group == "" {
		return nil
	}
	_, err := p.o.Groups.Add(ctx, def.Group, def.member(name), true)
	if err == nil {
		p.o.Changed("", false)
	}
	return err
}

// StartMember starts a member of a group from its definition. The groups package
// calls it.
func (p *Project) StartMember(ctx context.Context, name string, ifRunning process.IfRunning) (process.Status, error) {
	def, ok, err := p.Definition(ctx, name)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s has no definition: start_process with a command defines it, remove_from_group takes it out of the group", process.ErrInvalid, name)
	}
	if err != nil {
		return process.Status{}, err
	}
	if last, err := p.Find(ctx, name); err == nil && p.keepsAgain(ctx, &last) {
		return p.startMemberElsewhere(ctx, &last, def, &keepError{name: name})
	}
	started, err := p.launch(ctx, name, def, launchOptions{ifRunning: ifRunning})
	var away *WindowError
	if errors.As(err, &away) && ifRunning != process.KeepRunning {
		return p.startMemberElsewhere(ctx, &away.run, def, away)
	}
	if run := started.Run; err == nil && run.Owner != nil {
		err = &groups.ElsewhereError{ForeignRun: groups.ForeignRun{Status: run.Status, Owner: run.Owner.String()}}
	}
	return started.Run.Status, err
}

// startMemberElsewhere has the owner of last, the latest run of a member, restart it or, after a
// keepError, the daemon start it, until the same time. See restartAtOwner.
func (p *Project) startMemberElsewhere(ctx context.Context, last *Run, def Definition, why error) (process.Status, error) {
	p = p.of(last.Spec.Name)
	if err := p.restartAtOwner(ctx, last, def, why); err != nil {
		return process.Status{}, err
	}
	run, err := p.Find(ctx, last.Spec.Name)
	if err != nil {
		return run.Status, err
	}
	away := &groups.ElsewhereError{ForeignRun: groups.ForeignRun{Status: run.Status, Owner: "the daemon"}}
	if owner := cmp.Or(run.Owner, last.Owner); owner != nil { // else it has ended since
		away.Owner = owner.String()
	}
	away.Restarted, away.Kept = last.Owner != nil, last.Owner == nil
	return run.Status, away
}

// RanUnchanged reports whether st ran the present definition of its process. What the
// definition leaves open is what st had. The groups package calls it.
func (p *Project) RanUnchanged(ctx context.Context, st process.Status) bool {
	name := st.Spec.Name
	p = p.of(name)
	def, ok, err := p.Definition(ctx, name)
	if err != nil || !ok {
		return false
	}
	spec, err := p.Spec(name, def, false)
	if err != nil {
		return false
	}
	spec.Dir = filepath.Clean(def.dir(p.name))
	if def.Stdin == nil {
		spec.Stdin = st.Spec.Stdin
	}
	if def.Ready == nil {
		spec.Ready = st.Spec.Ready
	}
	return len(spec.Differs(st.Spec)) == 0
}
