package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"pmcp/process"
)

// definitions are what this session's processes were started with, secret
// values included; those live here only.
type definitions struct {
	defsMu sync.Mutex
	defs   map[string]specArgs
}

// definition returns what name was last started with: in this session, or
// stored by an earlier one. It is ungrouped.
func (s *Server) definition(ctx context.Context, name string) (specArgs, bool, error) {
	s.defsMu.Lock()
	args, ok := s.defs[name]
	s.defsMu.Unlock()
	if ok {
		return args.clone(), true, nil
	}
	return s.storedDefinition(ctx, name)
}

// storedDefinition returns what name was last started with by whichever session,
// without secret values. It is ungrouped.
func (s *Server) storedDefinition(ctx context.Context, name string) (args specArgs, ok bool, err error) {
	raw, ok, err := s.o.Store.Definition(ctx, s.o.Manager.Project(), name)
	if err != nil || !ok {
		return specArgs{}, false, err
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return specArgs{}, false, fmt.Errorf("cannot read the stored definition of %s: %w", name, err)
	}
	return args.ungrouped(), true, nil // an older pmcp stored the group as well
}

// keepDefinition remembers args for name, without its group, and stores them
// without secret values.
func (s *Server) keepDefinition(name string, args specArgs) {
	args = args.ungrouped()
	s.defsMu.Lock()
	if s.defs == nil {
		s.defs = make(map[string]specArgs)
	}
	s.defs[name] = args.clone()
	s.defsMu.Unlock()

	raw, err := args.withoutSecrets(s.o.Manager.Project(), s.o.Mask).masked(s.o.Mask)
	if err != nil {
		s.o.Log.Error("cannot store a definition", "process", name, "error", err)
		return
	}
	s.o.Store.SaveDefinition(s.o.Manager.Project(), name, raw)
}

// forgetDefinition forgets what name was started with, here and in the store.
func (s *Server) forgetDefinition(name string) {
	s.defsMu.Lock()
	delete(s.defs, name)
	s.defsMu.Unlock()
	s.o.Store.SaveDefinition(s.o.Manager.Project(), name, nil)
}

// ungrouped is a without its group and what it depends on there. Who is a member
// only the group knows: a definition that knew it too would undo a removal when
// it is started again.
func (a specArgs) ungrouped() specArgs {
	a.Group, a.DependsOn = "", nil
	return a
}

// clone copies what decoding over a definition would change in place.
func (a specArgs) clone() specArgs {
	a.Env, a.SecretEnv, a.Masked = maps.Clone(a.Env), slices.Clone(a.SecretEnv), slices.Clone(a.Masked)
	return a
}

// decodeOver decodes given over a: env merges, everything else that is given
// replaces. A new command line takes the old arguments with it, new arguments
// those of the old command line.
func (a specArgs) decodeOver(given json.RawMessage, project string, decode func(base specArgs) (specArgs, error)) (specArgs, error) {
	base := a.clone()
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(given, &keys) // what is wrong with it decode says
	switch {
	case !isMissing(keys["command"]):
		base.Args = nil
		keys["args"] = keys["command"] // what was there went with it
	case !isMissing(keys["args"]):
		base.dropArguments(project)
	}
	base.Masked = slices.DeleteFunc(base.Masked, func(name string) bool { return !isMissing(keys[name]) })
	merged, err := decode(base)
	if err != nil {
		return a, err
	}
	for key, value := range merged.Env {
		if value == nil {
			delete(merged.Env, key)
			merged.SecretEnv = slices.DeleteFunc(merged.SecretEnv, func(k string) bool { return k == key })
		}
	}
	return merged, nil
}

// dropArguments makes of a command line its program alone. What stands in front
// of that as NAME=value becomes env. a is a clone.
func (a *specArgs) dropArguments(project string) {
	if len(a.Args) > 0 {
		return
	}
	assigned, argv, err := process.SplitCommandLine(a.Command, a.dir(project))
	if err != nil {
		return // whoever starts it says why
	}
	a.Command = argv[0]
	for key, value := range assigned {
		if _, given := a.Env[key]; given {
			continue
		}
		if a.Env == nil {
			a.Env = make(map[string]*string)
		}
		a.Env[key] = &value
	}
}

func isMissing(raw json.RawMessage) bool { return len(raw) == 0 || isNothing(raw) }
