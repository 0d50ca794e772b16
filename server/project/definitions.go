package project

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process/command"
)

// An ownDefinition is a definition that this session started a process with.
type ownDefinition struct {
	def Definition
	// saved is the part of the definition that was stored, or nil if it could not
	// be stored.
	saved []byte
	at    time.Time // when it was saved
}

// Definition returns the definition that name was last started with: that of this
// session or, if another session has stored a newer one since, the stored one. The
// returned definition has no group.
func (p *Project) Definition(ctx context.Context, name string) (Definition, bool, error) {
	held, ok := p.definitions.Load(name)
	if !ok {
		return p.storedDefinition(ctx, name)
	}
	p = p.of(name)
	own := held.(*ownDefinition)
	raw, found, err := p.o.Store.Definition(ctx, p.name, name)
	switch {
	case err != nil || own.saved == nil || bytes.Equal(raw, own.saved):
		return own.def.clone(), true, nil
	case p.isReplaced(name, own): // by a newer one of this session since the read
		return p.Definition(ctx, name)
	case !found && p.o.Store.Status().State != logstore.StateOK: // the database is unavailable; the definition need not be deleted
		return own.def.clone(), true, nil
	case !found: // another session has deleted the definition
		p.definitions.CompareAndDelete(name, held)
		return Definition{}, false, nil
	}
	stored, err := readDefinition(name, raw)
	stored.fillSecrets(own.def, p.name, p.o.Mask)
	return stored, err == nil, err
}

func (p *Project) changedSince(name string, t time.Time) bool {
	held, ok := p.definitions.Load(name)
	return ok && held.(*ownDefinition).at.After(t)
}

func (p *Project) isReplaced(name string, own *ownDefinition) bool {
	p.mu.Lock() // waits for a save that has not finished
	defer p.mu.Unlock()
	now, _ := p.definitions.Load(name)
	return now != own
}

// storedDefinition returns the definition that any session last started name with,
// without secret values and without a group.
func (p *Project) storedDefinition(ctx context.Context, name string) (args Definition, ok bool, err error) {
	raw, ok, err := p.o.Store.Definition(ctx, p.name, name)
	if err != nil || !ok {
		return Definition{}, false, err
	}
	args, err = readDefinition(name, raw)
	return args, err == nil, err
}

func readDefinition(name string, raw []byte) (args Definition, err error) {
	if err := json.Unmarshal(raw, &args); err != nil {
		return Definition{}, fmt.Errorf("cannot read the stored definition of %s: %w", name, err)
	}
	return args.ungrouped(), nil // older versions of pmcp stored the group as well
}

// saveDefinition keeps args without their group in memory as the definition of
// name. It stores them without their group and without secret values, unless the process is unnamed.
func (p *Project) saveDefinition(name string, args Definition) {
	if args.unnamed {
		p.saveUnnamed(name, args)
		return
	}
	p.unnamed.Delete(name)
	p, args = p.of(name), args.ungrouped()
	raw, err := args.withoutSecrets(p.name, p.o.Mask).masked(p.o.Mask)
	p.mu.Lock()
	defer p.mu.Unlock()
	own := &ownDefinition{def: args.clone(), at: time.Now()}
	own.def.read, own.def.check = command.Source{}, command.Source{}
	if err != nil {
		p.o.Log.Error("cannot store a definition", "process", name, "error", err)
	} else {
		own.saved = p.o.Store.SaveDefinition(p.name, name, raw)
	}
	p.definitions.Store(name, own)
}

func (p *Project) deleteDefinition(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.definitions.Delete(name)
	p.o.Store.SaveDefinition(p.name, name, nil)
}

// ungrouped returns a without its group and without its dependencies in that group.
// Membership is stored only with the group: if the definition also had it, starting
// a process that was removed from the group would add the process to the group
// again.
func (a Definition) ungrouped() Definition {
	a.Group, a.DependsOn = "", nil
	return a
}

// clone returns a copy of a that can be decoded over without changing a.
func (a Definition) clone() Definition {
	a.Env, a.SecretEnv, a.Masked = maps.Clone(a.Env), slices.Clone(a.SecretEnv), slices.Clone(a.Masked)
	return a
}

// withoutFalse returns a without the arguments whose false or null means the same as an
// argument that is not given.
func (a Definition) withoutFalse() Definition {
	a.Removed = nil
	if !a.PTY.isSet() {
		a.PTY = nil
	}
	if !isSet(a.MergeOutput) {
		a.MergeOutput = nil
	}
	return a
}

// override returns a with the arguments in given: env is merged, every other argument in
// given replaces the one in a, and null removes it, or stays to remove what pmcp itself would set. A new command also replaces the old
// args. New args also replace the arguments in the old command line.
func (a Definition) override(given Definition, project string) Definition {
	merged, replaced := a.clone(), given.Arguments()
	merged.remove(given.Removed)
	if given.Command != "" || len(given.Args) > 0 || given.Cwd != "" && given.dir(project) != a.dir(project) {
		merged.From = ""
	}
	switch {
	case given.Command != "":
		merged.Args, merged.read = nil, given.read
		replaced["args"] = nil // so that args are no longer listed as masked
	case len(given.Args) > 0:
		merged.removeArguments(project)
	}
	merged.Masked = slices.DeleteFunc(merged.Masked, func(name string) bool { _, is := replaced[name]; return is })
	env := merged.Env // a clone
	into, from := reflect.ValueOf(&merged).Elem(), reflect.ValueOf(given)
	for _, f := range reflect.VisibleFields(from.Type()) {
		if value := from.FieldByIndex(f.Index); !f.Anonymous && f.IsExported() && !value.IsZero() {
			into.FieldByIndex(f.Index).Set(value)
		}
	}
	merged.Removed = nil
	if merged.Env = env; env == nil {
		merged.Env = make(map[string]*string)
	}
	maps.Copy(merged.Env, given.Env)
	for key, value := range merged.Env {
		if value == nil {
			if !command.HasDefault(key) {
				delete(merged.Env, key)
			}
			merged.SecretEnv = slices.DeleteFunc(merged.SecretEnv, func(k string) bool { return k == key })
		}
	}
	return merged
}

// remove removes the named arguments, except the command, without which nothing could be
// started. a must be a clone.
func (a *Definition) remove(names []string) {
	v := reflect.ValueOf(a).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if slices.Contains(names, name) && name != "command" {
			v.FieldByIndex(f.Index).SetZero()
		}
	}
	if slices.Contains(names, "env") {
		a.SecretEnv = nil
	}
	a.Masked = slices.DeleteFunc(a.Masked, func(name string) bool { return slices.Contains(names, name) })
}

// removeArguments reduces a command line to its program. Leading NAME=value words
// become env. a must be a clone.
func (a *Definition) removeArguments(project string) {
	if len(a.Args) > 0 {
		return
	}
	assigned, argv, err := a.source(project).Split()
	if err != nil {
		return // starting the process reports the error
	}
	a.Command = argv[0]
	a.addEnv(assigned)
}

// addEnv adds variables that a does not set. a must be a clone.
func (a *Definition) addEnv(variables map[string]string) {
	for key, value := range variables {
		if a.Env[key] != nil {
			continue
		}
		if a.Env == nil {
			a.Env = make(map[string]*string)
		}
		a.Env[key] = &value
	}
}

func (a Definition) differingArguments(other Definition) []string {
	mine, others, all := a.Arguments(), other.Arguments(), a.Arguments()
	maps.Copy(all, others)
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return bytes.Equal(mine[name], others[name]) })
	return slices.Sorted(maps.Keys(all))
}

// Arguments returns the arguments that a sets, keyed by name. They do not include
// SecretEnv and Masked, which are notes on what was not stored, and From.
func (a Definition) Arguments() map[string]json.RawMessage {
	a.SecretEnv, a.Masked, a.From = nil, nil, ""
	given := make(map[string]json.RawMessage)
	if raw, err := json.Marshal(a); err == nil { // cannot fail for text, numbers and lists
		_ = json.Unmarshal(raw, &given)
	}
	return given
}

// saveUnnamed keeps def as the definition of an unnamed process, and deletes those of processes that are
// not there any more.
func (p *Project) saveUnnamed(name string, def Definition) {
	p.unnamed.Range(func(name, _ any) bool {
		p.unnamedDefinition(name.(string))
		return true
	})
	def = def.clone()
	def.read, def.check = command.Source{}, command.Source{}
	p.unnamed.Store(name, &def)
}

// unnamedDefinition returns the definition that an unnamed process was last started with.
func (p *Project) unnamedDefinition(name string) (Definition, bool) {
	held, ok := p.unnamed.Load(name)
	if !ok {
		return Definition{}, false
	}
	if _, err := p.o.Manager.Status(name); err != nil {
		p.unnamed.CompareAndDelete(name, held)
		return Definition{}, false
	}
	return held.(*Definition).clone(), true
}

// merge returns given merged over the definition of name, if there is one.
func (p *Project) merge(ctx context.Context, name string, given Definition) (Definition, error) {
	base, ok, err := p.Definition(ctx, name)
	if err == nil && !ok {
		base, ok, err = p.ownDefinition(ctx, name)
	}
	if err != nil || !ok {
		return given, err
	}
	return base.override(given, p.name), nil
}

// ownDefinition returns the definition that name without its label has in the session's
// own project, if it runs in a directory of p: so older versions of pmcp stored it.
func (p *Project) ownDefinition(ctx context.Context, name string) (def Definition, ok bool, err error) {
	if p.isOwn() {
		return def, false, nil
	}
	own := p.o.Manager.Project()
	_, bare := p.o.Store.split(own, name)
	if def, ok, err = (&Project{session: p.session, name: own}).storedDefinition(ctx, bare); err != nil || !ok || def.Cwd == "" {
		return def, false, err
	}
	path, err := projectOf(own, def.dir(own))
	return def, err == nil && path == p.name, nil //nolint:nilerr // a directory that is gone belongs to no project
}
