package project

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
)

// Names returns the sorted addresses of this project that have a process, a log or a
// definition.
func (p *Project) Names(ctx context.Context) ([]string, error) {
	known := make(map[string]bool)
	own := p.o.Manager.List()
	for i := range own {
		if name := own[i].Spec.Name; p.of(name).name == p.name {
			known[name] = true
		}
	}
	stored, err := p.o.Store.names(ctx, p.name, nil)
	for _, name := range stored {
		known[name] = true
	}
	return slices.Sorted(maps.Keys(known)), err
}

// AllNames returns the addresses of all projects of the session, those of p first.
func (p *Project) AllNames(ctx context.Context) ([]string, error) {
	all, err := p.Names(ctx)
	for _, path := range p.o.Store.projects() {
		if path == p.name || err != nil {
			continue
		}
		var more []string
		more, err = (&Project{session: p.session, name: path}).Names(ctx)
		all = append(all, more...)
	}
	return all, err
}

// Resolve returns the addresses of the processes that an argument names: one process, or
// several separated by commas. It returns nil, which stands for all processes of p, if
// the argument is * or "". A name without a label is that of p or, if the call only
// reads and names no project, of the only project of the session that has it. For an unknown name the error
// has the nearest name and all names. What follows for these processes is fresh: see freshen.
// That holds for all of p only if the call reads, since one that acts on all means this session's.
func (p *Project) Resolve(ctx context.Context, argument string, reads bool) ([]string, error) {
	if argument == "" || argument == "*" {
		if reads {
			p.freshen(ctx, nil)
		}
		return nil, nil
	}
	names := splitNames(argument)
	if len(names) == 0 { // nil would select all processes
		return nil, fmt.Errorf("argument process: %q names no process; * means all", argument)
	}
	known := knownNames{project: p}
	for i, name := range names {
		own := p.o.Store.address(p.name, name)
		if _, err := p.o.Manager.Status(own); err == nil {
			names[i] = own
			continue
		}
		address, err := p.find(ctx, name, reads, &known)
		if err != nil {
			return nil, err
		}
		if address == "" {
			return nil, unknownName(name, known.all)
		}
		names[i] = address
	}
	p.freshen(ctx, names)
	return names, nil
}

// maxAlone is how many addresses of a call are looked up one by one. For more of them
// all addresses are listed.
const maxAlone = 16

// knownNames are the addresses of the session. A call that names a few known processes
// looks up only these; else all addresses are listed, once.
type knownNames struct {
	project *Project
	alone   int      // how many addresses were looked up alone
	all     []string // nil: not listed
}

// have reports whether address is known. If it returns false, all is set.
func (k *knownNames) have(ctx context.Context, address string) (_ bool, err error) {
	if k.all == nil && k.alone < maxAlone {
		k.alone++
		path, name := k.project.o.Store.split(k.project.name, address)
		found, err := k.project.o.Store.names(ctx, path, []string{name})
		if len(found) > 0 || err != nil {
			return err == nil, err
		}
	}
	if k.all == nil {
		k.all, err = k.project.AllNames(ctx)
	}
	return slices.Contains(k.all, address), err
}

// find returns the known address that name stands for, or "" if there is none.
func (p *Project) find(ctx context.Context, name string, reads bool, known *knownNames) (string, error) {
	own := p.o.Store.address(p.name, name)
	if ok, err := known.have(ctx, own); ok || err != nil {
		return own, err
	}
	labelled, err := p.labelled(ctx, name)
	if err != nil {
		return "", err
	}
	if labelled != "" {
		if _, err := p.o.Manager.Status(labelled); err == nil {
			return labelled, nil
		}
		known.all = nil // the label may have brought a project into the session
		if ok, err := known.have(ctx, labelled); ok || err != nil {
			return labelled, err
		}
		return "", nil
	}
	return p.inOtherProject(name, known.all, reads, process.ErrUnknown)
}

// inOtherProject returns the only known address that has name in any project of the session,
// or "" if none has, for a call that only reads and names no project. For any other call, and
// if there are several, the error names them and wraps unknown.
func (p *Project) inOtherProject(name string, known []string, reads bool, unknown error) (string, error) {
	var found []string
	for _, path := range p.o.Store.projects() {
		if address := p.o.Store.address(path, name); slices.Contains(known, address) {
			found = append(found, address)
		}
	}
	switch {
	case len(found) == 0:
		return "", nil
	case len(found) == 1 && reads && !p.chosen:
		return found[0], nil
	}
	return "", fmt.Errorf("%w: %q in the project of this call; there is %s", unknown, name, strings.Join(found, ", "))
}

// labelled returns the address that name is with a label, that of its project or a
// path or its end, or "" if name has no label of a project.
func (p *Project) labelled(ctx context.Context, name string) (string, error) {
	if path, bare := p.o.Store.split("", name); path != "" {
		return p.o.Store.address(path, bare), nil
	}
	bare, label, ok := strings.Cut(name, "@")
	if !ok || bare == "" || label == "" {
		return "", nil
	}
	paths, err := p.o.Store.labels.ProjectPaths(ctx, label)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot list the projects: %w", err)
	case len(paths) > 1:
		return "", fmt.Errorf("%.200q: the project may be %s; give one of these paths as project", name, strings.Join(paths, " or "))
	case len(paths) == 0:
		return "", nil
	}
	err = p.o.Store.join(ctx, paths[0])
	return p.o.Store.address(paths[0], bare), err
}

// NewAddress returns the address that a call gives to a process or group, which need
// not exist: that of p unless the name has the label of another project. known are the
// addresses of p; only they may have an @ in their names.
func (p *Project) NewAddress(ctx context.Context, name string, known func(context.Context) ([]string, error)) (string, error) {
	if !strings.Contains(name, "@") {
		return p.o.Store.address(p.name, name), nil
	}
	names, err := known(ctx)
	if own := p.o.Store.address(p.name, name); err != nil || slices.Contains(names, own) {
		return own, err
	}
	address, err := p.labelled(ctx, name)
	if err != nil {
		return "", err
	}
	if _, bare := p.o.Store.split("", address); address == "" || strings.Contains(bare, "@") {
		return "", fmt.Errorf("%w: name %.200q: no project has the label after the @; argument project or cwd names a project by its path", process.ErrInvalid, name)
	}
	return address, nil
}

// splitNames splits names at commas and removes duplicates.
func splitNames(argument string) []string {
	var names []string
	seen := make(map[string]bool) // a call may name 100,000 processes
	for part := range strings.SplitSeq(argument, ",") {
		if name := strings.TrimSpace(part); name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// ResolveOne returns the process that an argument names. The argument must name
// exactly one.
func (p *Project) ResolveOne(ctx context.Context, argument string, reads bool) (string, error) {
	names, err := p.Resolve(ctx, argument, reads)
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", fmt.Errorf("argument process: want the name of one process, got %.200q", argument)
	}
	return names[0], nil
}

func unknownName(name string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("%w: %.200q; nothing was started in this project yet", process.ErrUnknown, name)
	}
	return fmt.Errorf("%w: %s (there are: %s)", process.ErrUnknown, args.QuoteWithNearest(name, known), prose.OrNone(known))
}
