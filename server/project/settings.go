package project

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/process"
)

// liveSettings are the settings of a process that a call can change without
// restarting it.
type liveSettings struct {
	spec   process.Spec
	health *health.Spec
	member []groups.Member // entry of the process in the group that the call names; empty if the process is not a member
}

// liveSettings returns the current settings of the process called name. group is
// the group that the call names, or "".
func (p *Project) liveSettings(ctx context.Context, name, group string) (c liveSettings) {
	if st, err := p.o.Manager.Status(name); err == nil {
		c.spec = st.Spec
	}
	if st, ok := p.o.Health.Status(name); ok {
		c.health = &st.Spec
	}
	if group == "" {
		return c
	}
	if g, err := p.o.Groups.Group(ctx, group); err == nil {
		c.member = slices.DeleteFunc(slices.Clone(g.Members), func(m groups.Member) bool { return m.Process != name })
	}
	return c
}

// changes returns the names of the arguments in which c differs from other.
func (c liveSettings) changes(other liveSettings) (names []string) {
	for _, x := range []struct {
		name       string
		own, other any
	}{
		{"group", c.member, other.member},
		{"health", c.health, other.health},
		{"limits", c.spec.Limits, other.spec.Limits},
		{"max_restarts", c.spec.MaxRestarts, other.spec.MaxRestarts},
		{"restart", c.spec.Restart, other.spec.Restart},
		{"stop", c.spec.Stop, other.spec.Stop},
		{"watch", c.spec.Watch, other.spec.Watch},
	} {
		if !reflect.DeepEqual(x.own, x.other) {
			names = append(names, x.name)
		}
	}
	return names
}

// ErrOtherDefinition is wrapped if another window is running the process with another
// definition.
var ErrOtherDefinition = errors.New("its stored definition")

// checkSameDefinition returns an error if given differs from the stored definition
// of run: another server is running it, so the difference would be ignored.
func (p *Project) checkSameDefinition(ctx context.Context, run *Run, given Definition) error {
	p = p.of(run.Spec.Name)
	stored, ok, err := p.storedDefinition(ctx, run.Spec.Name)
	if err != nil || !ok {
		return nil //nolint:nilerr // there is nothing to compare with
	}
	differing, err := given.differsFromStored(run.Spec.Name, p.name, stored)
	if err != nil || len(differing) == 0 {
		return err
	}
	return fmt.Errorf("%s is already running in another pmcp server (%s); these arguments differ from %w: %s",
		run.Spec.Name, run.Owner, ErrOtherDefinition, strings.Join(differing, ", "))
}

// differsFromStored returns the arguments in which a differs from the stored
// definition and which only the owner of the process could apply: arguments that
// need a restart and, of the others, arguments that a sets. It reads no file.
// Secret and masked values never differ, nor do values that a or the stored
// definition does not set.
func (a Definition) differsFromStored(name, project string, stored Definition) ([]string, error) {
	if len(a.Masked) > 0 || len(stored.Masked) > 0 {
		return nil, nil
	}
	secret := slices.Concat(a.SecretEnv, stored.SecretEnv)
	sameFiles := slices.Equal(a.EnvFiles, stored.EnvFiles)
	specOf := func(def, other Definition) (c liveSettings, err error) {
		def = def.withAnyPorts()
		def.SecretEnv, def.EnvFiles, def.Cwd = nil, nil, def.dir(project)
		if other.Stdin == nil {
			def.Stdin = nil
		}
		if other.Ready == nil {
			def.Ready = nil
		}
		if c.spec, err = def.spec(name, project, false, true); err != nil {
			return c, err
		}
		maps.DeleteFunc(c.spec.Env, func(key, _ string) bool { return slices.Contains(secret, key) })
		c.health, err = def.healthSpec(def.Cwd, true)
		return c, err
	}
	given, err := specOf(a, stored)
	if err != nil {
		return nil, err
	}
	was, err := specOf(stored, a)
	if err != nil {
		return nil, nil //nolint:nilerr // an older version may have stored it
	}
	differing := was.spec.Differs(given.spec)
	if !sameFiles && !slices.Contains(differing, "env") {
		differing = append(differing, "env_files")
	}
	changes := was.changes(given)
	if !reflect.DeepEqual(a.Limits, stored.Limits) { // a spec's limits build on the defaults, which only the owner has
		changes = append(changes, "limits")
	}
	arguments := a.Arguments()
	return append(differing, slices.DeleteFunc(changes, func(name string) bool { return arguments[name] == nil })...), nil
}
