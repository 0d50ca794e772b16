package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/server/args"
)

// maxEvents is how many events are read at once, and allEvents is the number of those that
// the database keeps.
const (
	maxEvents = 1000
	allEvents = 10_000
)

func (s *screen) eventsCommand() *cobra.Command {
	var follow, wake bool
	var lines int
	var session string
	c := &cobra.Command{
		Use: "events [NAME…]", Short: "Print what happened to processes, and what was done to them: crashes, limits, starts, stops, input", ValidArgsFunction: s.completeNames,
		Example: "  pmcp events -f\n  pmcp events web --json",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := s.checkWake(names, session, wake); err != nil {
				return err
			}
			if wake {
				return s.wake(cmd.Context(), session)
			}
			if lines < 0 || lines > maxEvents {
				return fmt.Errorf("-n: want a number from 0 to %d, got %d", maxEvents, lines)
			}
			return s.events(cmd.Context(), names, lines, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print new events as they come")
	c.Flags().BoolVar(&wake, "wake", false, "print only what an agent must react to and has not caused, as it comes: for the client that starts this command")
	c.Flags().StringVar(&session, "session", "", "with --wake, of this session: an id of pmcp --doctor (default: those of the client that starts this command)")
	c.Flags().IntVarP(&lines, "lines", "n", 50, "how many of the last events")
	return c
}

// An eventRow is an event in the output of pmcp events --json.
type eventRow struct {
	Time    string `json:"time"`
	Project string `json:"project"`
	Process string `json:"process"`
	Kind    string `json:"kind,omitempty"` // see logstore.EventKind
	By      string `json:"by,omitempty"`
	Text    string `json:"text"`
}

// events prints the last n events and, if follow is set, later ones until ctx ends.
func (s *screen) events(ctx context.Context, arguments []string, n int, follow bool) error {
	r, err := s.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	names, err := r.find(ctx, arguments)
	if err != nil {
		return err
	}
	if follow {
		reading, stop, err := s.whileRead(ctx)
		if err != nil {
			return err
		}
		defer stop()
		ctx = reading
	}
	version := r.store.Version(ctx)
	all, err := r.Events(ctx, r.dir, names, maxEvents)
	if err != nil {
		return err
	}
	if len(all) == 0 && names == nil && !follow {
		s.sayNone(r, "events")
	}
	seen := all
	all = all[max(0, len(all)-n):]
	for {
		for i := range all {
			if err := s.event(ctx, r, &all[i]); err != nil {
				return err
			}
		}
		if err := s.out.flush(); err != nil || !follow {
			return err
		}
		if version, err = r.store.AwaitVersion(ctx, version); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		latest, err := r.eventsSince(ctx, names, seen)
		if err != nil {
			return err
		}
		all, seen = newEvents(latest, seen), latest
	}
}

// eventsSince returns the latest events, back to some that were seen, if there are any.
func (r *reader) eventsSince(ctx context.Context, names []string, seen []logstore.Event) ([]logstore.Event, error) {
	latest, err := r.Events(ctx, r.dir, names, maxEvents)
	if err == nil && len(latest) == maxEvents && (len(seen) == 0 || !slices.ContainsFunc(latest, func(e logstore.Event) bool { return !e.At.After(seen[len(seen)-1].At) })) {
		latest, err = r.Events(ctx, r.dir, names, allEvents)
	}
	return latest, err
}

// newEvents returns the events in latest that are not in seen. Events of several servers
// are stored in any order.
func newEvents(latest, seen []logstore.Event) (news []logstore.Event) {
	known := make(map[logstore.Event]bool, len(seen))
	for _, e := range seen {
		known[e] = true
	}
	for _, e := range latest {
		if !known[e] && (len(seen) == 0 || !e.At.Before(seen[0].At)) {
			news = append(news, e)
		}
	}
	return news
}

// event prints one event.
func (s *screen) event(ctx context.Context, r *reader, e *logstore.Event) error {
	s.found = true
	if s.json {
		return s.out.json(eventRow{Time: args.FormatTime(e.At), Project: e.Project, Process: e.Name, Kind: string(e.Kind), By: e.By, Text: e.Text})
	}
	text, _, _ := strings.Cut(e.Text, "; get_logs ") // what an agent may call next
	if rest, ok := strings.CutPrefix(text, e.Name); e.Name != "" {
		if strings.HasPrefix(rest, "@") { // a session of another project has written it
			rest = strings.TrimPrefix(rest, "@"+r.store.ProjectLabel(ctx, e.Project))
		}
		name := r.name(ctx, e.Project, e.Name)
		if text = name + rest; !ok {
			text = name + ": " + text
		}
	}
	return s.out.println(s.out.paint(dim, e.At.Local().Format(time.DateTime)) + " " + line.Visible(text))
}
