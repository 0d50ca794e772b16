package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"pmcp/logstore/line"
	"pmcp/server/project"
)

// actCommand returns the command that calls a tool for each process that it is given. A
// server of its own makes the call, as an agent in another window would, and the server
// that runs the process carries it out.
func (s *screen) actCommand(use, short, tool string) *cobra.Command {
	c := &cobra.Command{
		Use: use + " NAME…", Short: short, Args: takesNames, ValidArgsFunction: s.completeNames,
		Example: "  pmcp " + use + " web\n  pmcp " + use + " web@feature    # of another project",
		RunE:    func(cmd *cobra.Command, names []string) error { return s.act(cmd.Context(), tool, names) },
	}
	c.Flags().StringVar(&s.where.project, "project", "", "of this project: a path or a label (default: that of the current directory)")
	return c
}

// startCommand returns the command that starts processes by their stored definitions. The
// daemon runs them, because what the server of this command started would end with it.
func (s *screen) startCommand() *cobra.Command {
	keep := ""
	c := &cobra.Command{
		Use: "start NAME…", Short: "Start processes as they were started before, for the daemon to keep", Args: takesNames, ValidArgsFunction: s.completeNames,
		Example: "  pmcp start web\n  pmcp start --keep 7d web",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := project.CheckKeep(keep); err != nil { // else it would end with this command
				return err
			}
			return s.call(cmd.Context(), "start_process", names, false, callArguments{Keep: keep, prolongs: cmd.Flags().Changed("keep")})
		},
	}
	c.Flags().StringVar(&s.where.project, "project", "", "of this project: a path or a label (default: that of the current directory)")
	c.Flags().StringVar(&keep, "keep", "24h", "stop them after this time: at most 7d")
	return c
}

func (s *screen) act(ctx context.Context, tool string, names []string) error {
	return s.call(ctx, tool, names, true, callArguments{})
}

// call calls a tool, with more arguments, for each of the processes that are running, or that
// are not, and prints the answers. It continues after an error and returns all errors.
func (s *screen) call(ctx context.Context, tool string, names []string, running bool, more callArguments) error {
	s.found = false
	live, err := s.which(ctx, names, running, more.prolongs)
	if err != nil || len(live) == 0 {
		return err
	}
	s.found = true
	own, err := startSession(ctx, "pmcp "+strings.TrimSuffix(tool, "_process"), s.err)
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	var failed []error
	for _, name := range live {
		more.Process, more.Project = name, s.where.project
		if !running {
			more.Process, more.Name = "", name
		}
		arguments, err := json.Marshal(more)
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

// which returns the processes that a server is running or, unless running is set, those that
// none is running and, if kept is set, those that the daemon keeps. It reports the others.
func (s *screen) which(ctx context.Context, arguments []string, running, kept bool) (which []string, err error) {
	r, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	names, err := r.find(ctx, arguments)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 { // the tools have * for the processes of their session
		return nil, errors.New("name the processes: a command has none of its own that * could stand for; pmcp ps lists what runs")
	}
	for _, name := range names {
		run, err := r.project.Find(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case running && run.Owner == nil:
			s.complain("pmcp: " + name + " is not running")
		case !running && run.Owner != nil && !(kept && run.IsKept()):
			s.complain("pmcp: " + name + " is running already")
		default:
			which = append(which, name)
		}
	}
	return which, nil
}

// callArguments are the arguments of a call about one process.
type callArguments struct {
	Process string `json:"process,omitempty"`
	Name    string `json:"name,omitempty"` // of one to start
	Keep    string `json:"keep,omitempty"`
	Project string `json:"project,omitempty"`

	prolongs bool // Keep is also for what the daemon keeps already
}
