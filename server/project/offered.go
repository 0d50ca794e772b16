package project

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pmcp/process"
	"pmcp/process/command"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/offered"
)

// maxOfferedNames is how many offered names an error has.
const maxOfferedNames = 20

// An Offered is a program that files of the project offer.
type Offered struct {
	Name string // by which a start finds it
	*offered.Program
}

// Offered returns what the files of the project offer, and notes on what could not be read.
// The name of each is the one that starts it: that of a stored definition is taken.
func (p *Project) Offered(ctx context.Context) (all []Offered, notes []string) {
	offer := p.offer("")
	for i, name := range p.offeredNames(ctx, offer) {
		all = append(all, Offered{name, &offer.Programs[i]})
	}
	return all, offer.Notes
}

// OfferedNames returns the names of those that Offered returns and that can be started.
func (p *Project) OfferedNames(ctx context.Context) (names []string) {
	all, _ := p.Offered(ctx)
	for _, o := range all {
		if o.Not == "" {
			names = append(names, o.Name)
		}
	}
	return names
}

// Offers reports whether files of the project offer name: one or several programs, or a group,
// which a Procfile is by the name of its file.
func (p *Project) Offers(name string) (program, group bool) {
	_, bare := p.o.Store.split(p.name, name)
	offer := p.offer("")
	return len(offer.Find(bare)) > 0, offered.IsProcfile(bare) && slices.ContainsFunc(offer.Programs, func(o offered.Program) bool { return o.Source == bare })
}

// offer reads what the directory cwd of the project offers, with paths relative to the
// project. It has the masker learn the secrets before anything is shown.
func (p *Project) offer(cwd string) offered.Offer {
	if cwd == "" && process.IsNoProject(p.name) {
		return offered.Offer{}
	}
	dir := Definition{Cwd: cwd}.dir(p.name)
	if below, err := filepath.Rel(p.name, dir); err == nil && filepath.IsLocal(below) && !process.IsNoProject(p.name) {
		if cwd = below; cwd == "." {
			cwd = ""
		}
	}
	offer := offered.Read(dir, p.name)
	for i := range offer.Programs {
		program := &offer.Programs[i]
		if cwd != "" {
			program.Source = filepath.Join(cwd, program.Source)
		}
		if cwd != "" && !filepath.IsAbs(program.Cwd) {
			program.Cwd = filepath.Join(cwd, program.Cwd)
		}
		p.learnLine(program.Line, program.Argv, command.Read(program.Line, dir))
		p.learnLine(program.Script, nil, command.Read(program.Script, dir))
		for name, value := range program.Env {
			if value != nil {
				p.o.Mask.LearnEnv(map[string]string{name: *value})
			}
		}
	}
	return offer
}

// offeredNames returns the name that starts each program of offer: its own, or the qualified
// one if another file offers the same name or the definition that is stored under it runs
// something else.
func (p *Project) offeredNames(ctx context.Context, offer offered.Offer) []string {
	stored, _ := p.o.Store.Definitions(ctx, p.name) // a start reports an error
	names := make([]string, len(offer.Programs))
	for i := range offer.Programs {
		program := &offer.Programs[i]
		address := p.o.Store.address(p.name, program.Name)
		switch _, known := stored[address]; {
		case program.Not != "" || program.Plain && !known:
			names[i] = program.Name
		case program.Plain:
			def, ok, err := p.Definition(ctx, address)
			if names[i] = program.Qualified; err == nil && (!ok || p.runsOffered(def, program)) {
				names[i] = program.Name
			}
		default:
			names[i] = program.Qualified
		}
	}
	return names
}

// runsOffered reports whether def runs the command of program.
func (p *Project) runsOffered(def Definition, program *offered.Program) bool {
	base := definitionOf(program)
	return def.Command == base.Command && slices.Equal(def.Args, base.Args) && filepath.Clean(def.dir(p.name)) == filepath.Clean(base.dir(p.name))
}

// definitionOf returns the definition with which program is started.
func definitionOf(program *offered.Program) Definition {
	def := Definition{From: program.Source, Command: program.Line, Cwd: program.Cwd, Env: maps.Clone(program.Env), EnvFiles: program.EnvFiles}
	def.Ports = maps.Clone(program.Ports)
	switch argv := program.Argv; {
	case def.Command != "" || len(argv) == 0:
	case len(argv) == 1:
		def.Command = shellQuote(argv[0])
	default:
		def.Command, def.Args = argv[0], argv[1:]
	}
	if program.Port != 0 {
		def.Ready = &readyArgs{Port: args.IntOrText(strconv.Itoa(program.Port))}
	}
	return def
}

// TakeOffered completes a request that names no command with the program that the project
// offers under its name, unless a definition is stored under it. The name becomes that of the
// program. If nothing is offered under the name, the request stays as it is.
func (p *Project) TakeOffered(ctx context.Context, a StartRequest) (StartRequest, error) {
	if a.Definition.Command != "" || a.Restart {
		return a, nil
	}
	p = p.of(a.Name)
	known, err := p.isDefined(ctx, a.Name)
	if known || err != nil {
		a.Hint = p.changedOffer(ctx, a.Name)
		return a, err
	}
	_, bare := p.o.Store.split(p.name, a.Name)
	program, err := p.findOffered(bare, a.Definition.Cwd)
	if program == nil || err != nil {
		return a, err
	}
	name := program.Name
	if program.IsQualified(bare) {
		name = program.Qualified
	}
	a.Name = p.o.Store.address(p.name, name)
	if known, err := p.isDefined(ctx, a.Name); known || err != nil {
		a.Hint = p.changedOffer(ctx, a.Name)
		return a, err // it has been started before
	}
	a.Definition, err = p.overOffered(program, a.Definition)
	a.From, a.Hint = program.Source, program.Ignored
	return a, err
}

// memberOffered is TakeOffered for a member of a group, which keeps its name. cwd is the
// directory of the call.
func (p *Project) memberOffered(ctx context.Context, m *Member, cwd string) error {
	if m.Command != "" {
		return nil
	}
	if known, err := p.isDefined(ctx, m.Process); known || err != nil {
		return err
	}
	_, bare := p.o.Store.split(p.name, m.Process)
	program, err := p.findOffered(bare, cmp.Or(m.Cwd, cwd))
	if program != nil && err == nil {
		m.Definition, err = p.overOffered(program, m.Definition)
	}
	if err != nil {
		return fmt.Errorf("argument members: %w", err)
	}
	return nil
}

// isDefined reports whether a start of name needs no command.
func (p *Project) isDefined(ctx context.Context, name string) (bool, error) {
	def, err := p.merge(ctx, name, Definition{})
	if err != nil || def.Command != "" {
		return true, err
	}
	_, ok := p.unnamedDefinition(name)
	return ok, nil
}

// findOffered returns the program that the directory cwd of the project offers under name, or
// nil if there is none. It fails if several files offer it, or if it cannot be started.
func (p *Project) findOffered(name, cwd string) (*offered.Program, error) {
	found := p.offer(cwd).Find(name)
	switch {
	case len(found) == 0:
		return nil, nil //nolint:nilnil // nothing is offered
	case found[0].Not != "":
		return nil, fmt.Errorf("%s of %s cannot be started by its name: %s", name, found[0].Source, found[0].Not)
	case len(found) > 1:
		var names, sources []string
		for _, f := range found {
			sources = append(sources, f.Source)
			if f.Name == found[0].Name && f.Name == found[1].Name {
				names = append(names, f.Qualified)
			} else { // each of another workspace
				names = append(names, f.Name)
			}
		}
		return nil, fmt.Errorf("%s is offered by %s; give one of these names: %s", name, strings.Join(sources, ", "), strings.Join(names, ", "))
	}
	return found[0], nil
}

// overOffered returns given merged over the definition of program. A cwd in given is where
// program was found.
func (p *Project) overOffered(program *offered.Program, given Definition) (Definition, error) {
	base := definitionOf(program)
	if len(given.Args) > 0 {
		return given, fmt.Errorf("argument args: they would replace those that %s has: %s; give the whole command", program.Source, strings.Join(append([]string{base.Command}, base.Args...), " "))
	}
	for variable := range given.Env {
		delete(base.Ports, variable)
	}
	given.Cwd = ""
	return base.override(given, p.name), nil
}

// offeredText returns the end of the error for a name that is neither stored nor offered: what
// is offered, and what could not be read. names has the offered names.
func (p *Project) offeredText(ctx context.Context, cwd string) (text string, names []string) {
	offer := p.offer(cwd)
	for i, name := range p.offeredNames(ctx, offer) {
		if offer.Programs[i].Not == "" {
			names = append(names, name)
		}
	}
	shown := names[:min(len(names), maxOfferedNames)]
	if more := len(names) - len(shown); more > 0 {
		shown = append(slices.Clone(shown), fmt.Sprintf("%d more", more))
	}
	if len(names) > 0 {
		text = "offered: " + strings.Join(shown, ", ")
	}
	return prose.Join("; ", append([]string{text}, offer.Notes...)...), names
}

// changedOffer returns a sentence on the file from which the definition of name comes, if it
// now offers another command under that name, or "".
func (p *Project) changedOffer(ctx context.Context, name string) string {
	def, ok, err := p.Definition(ctx, name)
	if err != nil || !ok || def.From == "" {
		return ""
	}
	_, bare := p.o.Store.split(p.name, name)
	offer := p.offer("")
	for i := range offer.Programs {
		program := &offer.Programs[i]
		if program.Source == def.From && (program.Name == bare || program.Qualified == bare) && program.Not == "" && !p.runsOffered(def, program) {
			line := strings.Join(append([]string{program.Line}, program.Argv...), " ")
			return fmt.Sprintf("%s now has another command for %s: %s (command changes the definition)", def.From, bare, strings.TrimSpace(line))
		}
	}
	return ""
}
