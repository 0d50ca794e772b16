package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"pmcp/logstore/line"
)

// actCommand returns the command that calls a tool for each process that it is given. A
// server of its own makes the call, as an agent in another window would, and the server
// that runs the process carries it out.
func (s *screen) actCommand(use, short, tool string) *cobra.Command {
	c := &cobra.Command{
		Use: use + " NAME…", Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: s.completeNames,
		Example: "  pmcp " + use + " web\n  pmcp " + use + " web@feature    # of another project",
		RunE:    func(cmd *cobra.Command, names []string) error { return s.act(cmd.Context(), tool, names) },
	}
	c.Flags().StringVar(&s.where.project, "project", "", "of this project: a path or a label (default: that of the current directory)")
	return c
}

// act calls a tool for each of the processes that are running and prints the answers. It
// goes on after an error and returns all of them.
func (s *screen) act(ctx context.Context, tool string, names []string) error {
	s.found = false
	live, err := s.live(ctx, names)
	if err != nil || len(live) == 0 {
		return err
	}
	s.found = true
	own, err := startSession(ctx, s.err)
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	var failed []error
	for _, name := range live {
		arguments, err := json.Marshal(callArguments{Process: name, Project: s.where.project})
		if err != nil {
			return err
		}
		text, err := own.text(ctx, tool, arguments)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if err := s.out.println(line.Visible(text)); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// live returns the processes that a server is running, and reports the others: what the
// server of this command started would end with the command.
func (s *screen) live(ctx context.Context, arguments []string) (live []string, err error) {
	r, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	names, err := r.find(ctx, arguments)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		run, err := r.project.Find(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case run.Owner == nil:
			fmt.Fprintf(s.err, "pmcp: %s is not running\n", name)
		default:
			live = append(live, name)
		}
	}
	return live, nil
}

// callArguments are the arguments of a call about one process.
type callArguments struct {
	Process string `json:"process"`
	Project string `json:"project,omitempty"`
}
