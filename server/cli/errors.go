package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/server/args"
)

// maxErrors is how many kinds of errors pmcp errors prints, the latest.
const maxErrors = 1000

func (s *screen) errorsCommand() *cobra.Command {
	var since string
	var resolved bool
	c := &cobra.Command{
		Use: "errors [NAME…]", Short: "List the kinds of errors, latest first", ValidArgsFunction: s.completeNames,
		Example: "  pmcp errors web\n  pmcp errors --since 1h --json | jq -r '\"\\(.file):\\(.line) \\(.message)\"'",
		RunE:    func(cmd *cobra.Command, names []string) error { return s.errors(cmd.Context(), names, since, resolved) },
	}
	c.Flags().StringVar(&since, "since", "", "only errors seen after this time: 10m, 2d, 20:08, 2026-01-05")
	c.Flags().BoolVar(&resolved, "resolved", false, "also errors that were marked as resolved")
	return c
}

// An errorRow is a kind of error in the output of pmcp errors --json.
type errorRow struct {
	ErrorID  string   `json:"error_id"`
	Project  string   `json:"project"`
	Process  string   `json:"process"`
	Run      int      `json:"run"`
	Category string   `json:"category"`
	Type     string   `json:"type,omitempty"`
	Message  string   `json:"message"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Count    int64    `json:"count"`
	First    string   `json:"first_seen"`
	Last     string   `json:"last_seen"`
	Resolved bool     `json:"resolved,omitempty"`
	Stack    []string `json:"stack,omitempty"`
}

// errors prints the kinds of errors.
func (s *screen) errors(ctx context.Context, arguments []string, since string, resolved bool) error {
	r, err := s.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	q := logstore.FaultQuery{Project: r.dir, Limit: maxErrors, SkipFlush: true}
	if q.Names, err = r.find(ctx, arguments); err != nil {
		return err
	}
	if q.Since, err = args.ParseSince(since, time.Now()); err != nil {
		return err
	}
	if !resolved {
		q.Resolved = new(false)
	}
	all, total, err := r.Faults(ctx, q)
	if err != nil {
		return err
	}
	if s.found = total > 0; q.Names == nil && since == "" {
		s.sayNone(r, "errors")
	}
	for i := range all {
		if err := s.fault(ctx, r, &all[i]); err != nil {
			return err
		}
	}
	if more := total - len(all); more > 0 && !s.json {
		return s.out.println(s.out.paint(dim, fmt.Sprintf("%d more; --since selects the latest", more)))
	}
	return nil
}

// fault prints one kind of error.
func (s *screen) fault(ctx context.Context, r *reader, f *logstore.Fault) error {
	if s.json {
		return s.out.json(rowOfFault(f))
	}
	where := r.name(ctx, f.Project, f.Name)
	if f.File != "" {
		where += " " + f.File
		if f.Line > 0 {
			where += fmt.Sprintf(":%d", f.Line)
		}
	}
	age := args.FormatAge(time.Since(f.LastSeen)) + " ago"
	if f.Count > 1 {
		age += fmt.Sprintf(", %d times", f.Count)
	}
	if !f.Resolved.IsZero() {
		age += ", resolved"
	}
	if err := s.out.println(s.out.paint(red, line.Visible(f.Title()))); err != nil {
		return err
	}
	return s.out.println("    " + line.Visible(where) + " " + s.out.paint(dim, "("+age+")"))
}

// rowOfFault returns a kind of error for --json.
func rowOfFault(f *logstore.Fault) errorRow {
	return errorRow{
		ErrorID: f.ID, Project: f.Project, Process: f.Name, Run: f.RunNumber, Category: f.Category, Type: f.Type, Message: f.Message,
		File: f.File, Line: f.Line, Column: f.Column, Count: f.Count, First: args.FormatTime(f.FirstSeen), Last: args.FormatTime(f.LastSeen),
		Resolved: !f.Resolved.IsZero(), Stack: f.Stack,
	}
}
