package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// definedMember is a member that create_group gives a definition, or changes the
// one of.
type definedMember struct {
	name string
	def  specArgs
}

// memberDefinitions are the definitions that a call gives its members. All are
// checked, those of members that are only named as well.
func (s *Server) memberDefinitions(ctx context.Context, members []memberArgs) ([]definedMember, error) {
	var defined []definedMember
	for _, m := range members {
		def, err := s.memberDefinition(ctx, "members", m)
		if err != nil {
			return nil, err
		}
		if m.definesMore() {
			defined = append(defined, definedMember{name: m.Process, def: def.ungrouped()})
		}
	}
	return defined, nil
}

// definesMore says whether more is given than that the process is a member, and
// after which others.
func (m memberArgs) definesMore() bool {
	var given map[string]json.RawMessage
	if json.Unmarshal(m.raw, &given) != nil {
		return false
	}
	for key, value := range given {
		if !slices.Contains([]string{"process", "name", "group", "depends_on"}, key) && !isNothing(value) {
			return true
		}
	}
	return false
}

// memberDefinition is what a member is started with: what is given, without a
// command laid over the stored definition. It refuses a member that could not be
// started: with a definition that is wrong, or with none at all. argument is the
// one that names it.
func (s *Server) memberDefinition(ctx context.Context, argument string, m memberArgs) (specArgs, error) {
	def := m.specArgs
	if def.Command == "" {
		var err error
		if def, err = s.overStored(ctx, m.Process, m.raw, m.over); err != nil {
			return def, err
		}
		if def.Command == "" {
			return def, fmt.Errorf("argument %s: %s has no command, and no definition of that name is stored; start_process with a command gives it one", argument, m.Process)
		}
	}
	spec, err := s.specOf(ctx, m.Process, def, false)
	if err == nil {
		err = spec.Validate()
	}
	if err != nil {
		return def, fmt.Errorf("argument %s: %s: %w", argument, m.Process, err)
	}
	if _, err := def.healthSpec(def.dir(s.o.Manager.Project())); err != nil {
		return def, fmt.Errorf("argument %s: %s: %w", argument, m.Process, err)
	}
	return def, nil
}

// over is base with what is given laid over it.
func (m memberArgs) over(base specArgs) (specArgs, error) {
	if m.raw == nil { // nothing but the name
		return base, nil
	}
	m.specArgs = base
	err := decodeArguments(m.raw, &m)
	return m.specArgs, err
}

// changedMember says in a sentence what d changes of the definition there was,
// and nothing where there was none or it is the same.
func (s *Server) changedMember(ctx context.Context, d definedMember) []string {
	old, ok, err := s.definition(ctx, d.name)
	if err != nil || !ok {
		return nil // what cannot be read is replaced
	}
	fields := d.def.withoutNotes().differing(old.withoutNotes())
	if len(fields) == 0 {
		return nil
	}
	text := fmt.Sprintf("changed %s: %s", d.name, strings.Join(fields, ", "))
	if st, err := s.o.Manager.Status(d.name); err == nil && st.State.Live() {
		text += " (it runs as before until it is restarted)"
	}
	return []string{text}
}

// withoutNotes is a without the notes on what is not stored.
func (a specArgs) withoutNotes() specArgs {
	a.SecretEnv, a.Masked = nil, nil
	return a
}

// differing are the names of the arguments in which a is not like other.
func (a specArgs) differing(other specArgs) []string {
	mine, others := a.arguments(), other.arguments()
	names := slices.Collect(maps.Keys(mine))
	for name := range others {
		if _, both := mine[name]; !both {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return bytes.Equal(mine[name], others[name]) })
	slices.Sort(names)
	return names
}

// arguments is what is given of a, by name; nil for what cannot be written.
func (a specArgs) arguments() map[string]json.RawMessage {
	raw, err := json.Marshal(a)
	var given map[string]json.RawMessage
	if err != nil || json.Unmarshal(raw, &given) != nil {
		return nil
	}
	return given
}
