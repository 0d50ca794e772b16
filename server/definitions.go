package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"pmcp/logstore"
	"pmcp/process"
)

// definitions are what this session's processes were started with, secret
// values included; those live here only.
type definitions struct {
	defsMu sync.Mutex
	defs   map[string]ownDefinition
}

// ownDefinition is what this session started a process with.
type ownDefinition struct {
	specArgs
	// saved is what the store was given of it; nil if that was not possible.
	saved []byte
}

// definition returns what name was last started with: in this session, or as
// another one has stored it since. It is ungrouped.
func (s *Server) definition(ctx context.Context, name string) (specArgs, bool, error) {
	s.defsMu.Lock()
	own, ok := s.defs[name]
	s.defsMu.Unlock()
	if !ok {
		return s.storedDefinition(ctx, name)
	}
	raw, found, err := s.o.Store.Definition(ctx, s.o.Manager.Project(), name)
	switch {
	case err != nil || own.saved == nil || bytes.Equal(raw, own.saved):
		return own.clone(), true, nil
	case !s.isKept(name, own): // this session stored another meanwhile
		return s.definition(ctx, name)
	case !found && s.o.Store.Status().State != logstore.StateOK: // it is not gone, only the file is
		return own.clone(), true, nil
	case !found: // another session has forgotten it
		s.dropDefinition(name, own)
		return specArgs{}, false, nil
	}
	theirs, err := readDefinition(name, raw)
	theirs.takeSecrets(own.specArgs, s.o.Manager.Project(), s.o.Mask)
	return theirs, err == nil, err
}

// isKept says whether own is still what this session keeps of name.
func (s *Server) isKept(name string, own ownDefinition) bool {
	s.defsMu.Lock()
	defer s.defsMu.Unlock()
	now, ok := s.defs[name]
	return ok && bytes.Equal(now.saved, own.saved)
}

// dropDefinition forgets own, if it is still what this session keeps of name.
func (s *Server) dropDefinition(name string, own ownDefinition) {
	s.defsMu.Lock()
	defer s.defsMu.Unlock()
	if bytes.Equal(s.defs[name].saved, own.saved) {
		delete(s.defs, name)
	}
}

// storedDefinition returns what name was last started with by whichever session,
// without secret values. It is ungrouped.
func (s *Server) storedDefinition(ctx context.Context, name string) (args specArgs, ok bool, err error) {
	raw, ok, err := s.o.Store.Definition(ctx, s.o.Manager.Project(), name)
	if err != nil || !ok {
		return specArgs{}, false, err
	}
	args, err = readDefinition(name, raw)
	return args, err == nil, err
}

func readDefinition(name string, raw []byte) (args specArgs, err error) {
	if err := json.Unmarshal(raw, &args); err != nil {
		return specArgs{}, fmt.Errorf("cannot read the stored definition of %s: %w", name, err)
	}
	return args.ungrouped(), nil // an older pmcp stored the group as well
}

// keepDefinition remembers args for name, without its group, and stores them
// without secret values.
func (s *Server) keepDefinition(name string, args specArgs) {
	args = args.ungrouped()
	raw, err := args.withoutSecrets(s.o.Manager.Project(), s.o.Mask).masked(s.o.Mask)
	s.defsMu.Lock()
	defer s.defsMu.Unlock()
	if s.defs == nil {
		s.defs = make(map[string]ownDefinition)
	}
	own := ownDefinition{specArgs: args.clone()}
	if err != nil {
		s.o.Log.Error("cannot store a definition", "process", name, "error", err)
	} else {
		own.saved = s.o.Store.SaveDefinition(s.o.Manager.Project(), name, raw)
	}
	s.defs[name] = own
}

// forgetDefinition forgets what name was started with, here and in the store.
func (s *Server) forgetDefinition(name string) {
	s.defsMu.Lock()
	defer s.defsMu.Unlock()
	delete(s.defs, name)
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
