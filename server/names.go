package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/logstore"
	"pmcp/process"
)

// knownNames are the names of this project that a process, a log or a
// definition has.
func (s *Server) knownNames(ctx context.Context) ([]string, error) {
	known := make(map[string]bool)
	for _, st := range s.o.Manager.List() {
		known[st.Spec.Name] = true
	}
	runs, err := s.o.Store.Runs(ctx, logstore.RunFilter{Project: s.o.Manager.Project(), Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("cannot list what ran: %w", err)
	}
	for _, run := range runs {
		known[run.Name] = true
	}
	stored, err := s.o.Store.Definitions(ctx, s.o.Manager.Project())
	if err != nil {
		return nil, fmt.Errorf("cannot list the stored definitions: %w", err)
	}
	for name := range stored {
		known[name] = true
	}
	return slices.Sorted(maps.Keys(known)), nil
}

// resolveNames reads an argument that names processes: one, several with commas
// between, or * for all, which is nil, as is "". An unknown name is an error
// that shows the nearest and all.
func (s *Server) resolveNames(ctx context.Context, argument string) ([]string, error) {
	if argument == "" || argument == "*" {
		return nil, nil
	}
	names := splitNames(argument)
	if len(names) == 0 { // nil would be all
		return nil, fmt.Errorf("argument process: %q names no process; * means all", argument)
	}
	var known []string
	for _, name := range names {
		if _, err := s.o.Manager.Status(name); err == nil {
			continue
		}
		if known == nil {
			var err error
			if known, err = s.knownNames(ctx); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(known, name) {
			return nil, unknownName(name, known)
		}
	}
	return names, nil
}

// splitNames takes names with commas between apart, each once.
func splitNames(argument string) []string {
	var names []string
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(argument, ",") {
		if name := strings.TrimSpace(part); name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// resolveName reads an argument that names one process.
func (s *Server) resolveName(ctx context.Context, argument string) (string, error) {
	names, err := s.resolveNames(ctx, argument)
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
	return fmt.Errorf("%w: %s (there are: %s)", process.ErrUnknown, quoteWithNearest(name, known), strings.Join(known, ", "))
}

// quoteWithNearest is an unknown name, and the known one that was probably meant.
func quoteWithNearest(name string, known []string) string {
	text := fmt.Sprintf("%.200q", name)
	if best := nearest(name, known); best != "" {
		text += fmt.Sprintf("; did you mean %s?", best)
	}
	return text
}

// latestRun is the latest run of name that the store has; false if there is
// none.
func (s *Server) latestRun(ctx context.Context, name string) (logstore.Run, bool, error) {
	runs, err := s.o.Store.Runs(ctx, logstore.RunFilter{Project: s.o.Manager.Project(), Names: []string{name}, Limit: 1})
	if err != nil || len(runs) == 0 {
		return logstore.Run{}, false, err
	}
	return runs[0], true, nil
}

// foreignRun is the run of name that another live server owns, if there is one.
func (s *Server) foreignRun(ctx context.Context, name string) (*logstore.Run, error) {
	run, ok, err := s.latestRun(ctx, name)
	if err != nil || !ok || !isForeign(&run) {
		return nil, err
	}
	return &run, nil
}

// ownOnly refuses to change a process that another live server owns.
func (s *Server) ownOnly(ctx context.Context, name string) error {
	run, err := s.foreignRun(ctx, name)
	if err != nil || run == nil {
		return err
	}
	return ownedElsewhere(run)
}

// ownedElsewhere says that run is another server's.
func ownedElsewhere(run *logstore.Run) error {
	return fmt.Errorf("%s belongs to another pmcp server (%s), which alone can change it; its log can be read from here", run.Name, decodeRunInfo(run.Info).Owner)
}
