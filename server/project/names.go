package project

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/args"
)

// Names returns the sorted names of this project that have a process, a log or
// a definition.
func (p *Project) Names(ctx context.Context) ([]string, error) {
	known := make(map[string]bool)
	for _, st := range p.o.Manager.List() {
		known[st.Spec.Name] = true
	}
	runs, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: p.name, Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("cannot list the runs: %w", err)
	}
	for _, run := range runs {
		known[run.Name] = true
	}
	stored, err := p.o.Store.Definitions(ctx, p.name)
	if err != nil {
		return nil, fmt.Errorf("cannot list the stored definitions: %w", err)
	}
	for name := range stored {
		known[name] = true
	}
	return slices.Sorted(maps.Keys(known)), nil
}

// Resolve returns the processes that an argument names: one process, or
// several separated by commas. It returns nil, which stands for all processes, if
// the argument is * or "". For an unknown name it returns an error with the nearest
// name and all names.
func (p *Project) Resolve(ctx context.Context, argument string) ([]string, error) {
	if argument == "" || argument == "*" {
		return nil, nil
	}
	names := splitNames(argument)
	if len(names) == 0 { // nil would select all processes
		return nil, fmt.Errorf("argument process: %q names no process; * means all", argument)
	}
	var known []string
	for _, name := range names {
		if _, err := p.o.Manager.Status(name); err == nil {
			continue
		}
		if known == nil {
			var err error
			if known, err = p.Names(ctx); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(known, name) {
			return nil, unknownName(name, known)
		}
	}
	return names, nil
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
func (p *Project) ResolveOne(ctx context.Context, argument string) (string, error) {
	names, err := p.Resolve(ctx, argument)
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", fmt.Errorf("argument process: want the name of one process, got %.200q", argument)
	}
	return names[0], nil
}

// unknownName returns the error for a name that is not in known.
func unknownName(name string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("%w: %.200q; nothing was started in this project yet", process.ErrUnknown, name)
	}
	return fmt.Errorf("%w: %s (there are: %s)", process.ErrUnknown, args.QuoteWithNearest(name, known), args.OrNone(known))
}
