package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/server/args"
)

// logFlags are the flags of pmcp logs.
type logFlags struct {
	follow             bool
	lines, since, grep string
	ignoreCase         bool
	level              string
	run                int
}

// selectsNone reports whether the flags select all lines but for their number.
func (f *logFlags) selectsNone() bool {
	return f.since == "" && f.grep == "" && f.level == "" && f.run == 0
}

// defaultLines is how many lines pmcp logs prints unless flags say otherwise. maxLines is
// the largest number that -n takes; all is unbounded.
const (
	defaultLines = 100
	maxLines     = 1_000_000
	pageLines    = 2_000 // how many lines are read at once
)

func (s *screen) logsCommand() *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use: "logs [NAME…]", Short: "Print the log of processes, oldest line first", ValidArgsFunction: s.completeNames,
		Long: "Prints the last " + strconv.Itoa(defaultLines) + " lines; with --since, --run or --grep all that these select, unless -n is given.\n" +
			"Into a pipe or a file, prints the latest run of the named processes as a whole, and of one process the text alone.",
		Example: `  pmcp logs web api -f
  pmcp logs --since 10m --level warn
  pmcp logs web | sort | uniq -c
  pmcp logs --all --grep 'timeout after \d+' --json | jq .text`,
		RunE: func(cmd *cobra.Command, names []string) error { return s.logs(cmd.Context(), names, &f) },
	}
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "print new lines as they come, also of later runs")
	c.Flags().StringVarP(&f.lines, "lines", "n", "", `how many of the last lines: a number, or "all"`)
	c.Flags().StringVar(&f.since, "since", "", "only lines after this time: 10m, 2d, 20:08, 2026-01-05 20:08, 2026-01-05T10:00:00Z")
	c.Flags().StringVarP(&f.grep, "grep", "g", "", "only lines that match this regular expression (RE2)")
	c.Flags().BoolVarP(&f.ignoreCase, "ignore-case", "i", false, "match --grep in upper and lower case")
	c.Flags().StringVar(&f.level, "level", "", "only lines of this level or a higher one: trace, debug, info, warn, error, fatal")
	_ = c.RegisterFlagCompletionFunc("level", cobra.FixedCompletions([]string{"trace", "debug", "info", "warn", "error", "fatal"}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().IntVar(&f.run, "run", 0, "only this run: its number, or -1 for the latest")
	return c
}

// logs prints lines.
func (s *screen) logs(ctx context.Context, names []string, f *logFlags) error {
	r, err := s.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	v, err := s.view(ctx, r, names, f)
	if err != nil {
		return err
	}
	if v.match != nil {
		v.progress = StartProgress(s.err, func() string { return fmt.Sprintf("searching, %d lines so far", v.searched.Load()) })
		defer v.progress.End()
		s.out.over(v.progress)
	}
	if f.follow {
		reading, stop, err := s.whileRead(ctx)
		if err != nil {
			return err
		}
		defer stop()
		ctx = reading
	}
	if err := v.seek(ctx); err != nil {
		return err
	}
	if err := v.print(ctx); ctx.Err() == nil {
		if err == nil && v.query.Names == nil && f.selectsNone() {
			s.sayNone(r, "lines")
		}
		return err
	}
	return nil
}

// A logView prints the lines of one command.
type logView struct {
	s      *screen
	r      *reader
	query  logstore.Query // its After is the position of the next line
	match  *regexp.Regexp // nil matches every line
	search logstore.SearchQuery
	last   int // how many of the last lines are printed first; -1 = all
	follow bool
	named  bool // lines show the name of their process
	bare   bool // lines show nothing but their text
	today  string

	progress *Progress // of a search
	searched atomic.Int64
}

// silentFor is how long a follower waits for a line before it asks the servers whether they
// can store any, which also has them try again.
const silentFor = 5 * time.Second

// searchTime is how long a search runs before what it has found is printed.
const searchTime = 500 * time.Millisecond

// view returns the view that arguments and flags ask for.
func (s *screen) view(ctx context.Context, r *reader, arguments []string, f *logFlags) (v *logView, err error) {
	v = &logView{s: s, r: r, follow: f.follow, today: time.Now().Format(time.DateOnly)}
	if v.query.Names, err = r.find(ctx, arguments); err != nil {
		return nil, err
	}
	piped := s.out.width == 0
	v.query.Project, v.named = r.dir, len(v.query.Names) != 1
	v.bare = piped && !v.named
	if v.query.Since, err = args.ParseSince(f.since, time.Now()); err != nil {
		return nil, err
	}
	if f.level != "" {
		level, ok := line.ParseLevel(f.level)
		if !ok {
			return nil, fmt.Errorf("--level: want trace, debug, info, warn, error or fatal, got %q", f.level)
		}
		v.query.MinLevel = level
	}
	if f.run != 0 {
		if v.query.Runs, err = r.runs(ctx, v.query, f.run); err != nil {
			return nil, err
		}
	}
	if f.grep != "" {
		pattern := f.grep
		if f.ignoreCase {
			pattern = "(?i)" + pattern
		}
		if v.match, err = regexp.Compile(pattern); err != nil {
			return nil, fmt.Errorf("--grep: %w", err)
		}
		v.search = logstore.SearchQuery{Text: f.grep, Regexp: true, CaseSensitive: !f.ignoreCase}
	}
	if v.last, err = parseLines(f.lines, f.since == "" && f.run == 0 && f.grep == ""); err != nil {
		return v, err
	}
	if piped && v.query.Names != nil && f.selectsNone() && f.lines == "" && !f.follow {
		v.last = -1
		v.query.Runs, err = r.numbered(ctx, v.query, -1)
	}
	return v, err
}

// parseLines parses -n. Without it, a command that selects nothing else prints
// defaultLines; any other prints all.
func parseLines(n string, whole bool) (int, error) {
	switch {
	case n == "" && whole:
		return defaultLines, nil
	case n == "" || n == "all":
		return -1, nil
	}
	count, err := strconv.Atoi(n)
	if err != nil || count < 0 || count > maxLines {
		return 0, fmt.Errorf(`-n: want a number from 0 to %d, or "all", got %q`, maxLines, n)
	}
	return count, nil
}

func (r *reader) numbered(ctx context.Context, q logstore.Query, number int) (ids []int64, err error) {
	runs, err := r.Runs(ctx, logstore.RunFilter{Project: q.Project, Names: q.Names, Number: number})
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	return ids, err
}

// runs returns the ids of the runs with a number, one for each process in the query. It fails if there are none.
func (r *reader) runs(ctx context.Context, q logstore.Query, number int) (ids []int64, err error) {
	ids, err = r.numbered(ctx, q, number)
	if err == nil && len(ids) == 0 {
		var runs []logstore.Run
		last := 0
		runs, err = r.Runs(ctx, logstore.RunFilter{Project: q.Project, Names: q.Names, Current: true})
		for i := range runs {
			last = max(last, runs[i].Number)
		}
		err = errors.Join(fmt.Errorf("--run: there is no run %d; the latest is %d", number, last), err)
	}
	return ids, err
}

// seek sets the query to the position before the first line to print. It goes back page
// by page, so that it needs memory for one page only.
func (v *logView) seek(ctx context.Context) error {
	if v.last < 0 {
		v.query.After = logstore.CursorStart
		return nil
	}
	left, back := v.last, v.query
	for back.Newest = true; ; {
		n, cursor, more, err := v.back(ctx, back, min(max(left, 1), pageLines), left == 0)
		if err != nil {
			return err
		}
		v.query.After = cursor
		if left -= n; left <= 0 || !more {
			return nil
		}
		back.Before, back.Newest = cursor, false
	}
}

// back reads one page towards the start. It returns the number of its matching lines, the
// position before them (after them if end is set), and whether more lines precede them.
func (v *logView) back(ctx context.Context, q logstore.Query, limit int, end bool) (n int, cursor string, more bool, err error) {
	q.Limit = limit
	if v.match == nil || end {
		page, err := v.r.Read(ctx, q)
		if err != nil {
			return 0, "", false, err
		}
		if end {
			return 0, page.Next(), false, nil
		}
		return len(page.Lines), page.Prev(), page.MoreBefore, nil
	}
	found, err := v.find(ctx, q, false)
	if err != nil {
		return 0, "", false, err
	}
	return len(found.Hits), found.Next(), found.More, nil
}

// print prints the lines from the position on; if the view follows, until ctx ends.
func (v *logView) print(ctx context.Context) error {
	if v.match != nil {
		if err := v.hits(ctx); err != nil {
			return err
		}
		v.progress.End()
	}
	v.query.Limit = pageLines
	for ctx.Err() == nil && (v.match == nil || v.follow) {
		page, err := v.r.Read(ctx, v.query)
		if err != nil {
			return err
		}
		if err := v.page(ctx, page); err != nil {
			return err
		}
		v.query.After = page.Next()
		if page.MoreAfter {
			continue
		}
		if !v.follow {
			return nil
		}
		if err := v.s.out.flush(); err != nil {
			return err
		}
		following, stop := context.WithTimeout(ctx, silentFor)
		page, err = v.r.Follow(following, v.query)
		if stop(); err != nil {
			return err
		}
		if len(page.Lines) == 0 {
			v.r.askToStore(ctx)
		}
		if err := errors.Join(v.page(ctx, page), v.s.out.flush()); err != nil {
			return err
		}
		v.query.After = page.Next()
	}
	return nil
}

// hits prints the lines that match, up to the present.
func (v *logView) hits(ctx context.Context) error {
	for more := true; more; {
		q := v.query
		q.Limit = pageLines
		found, err := v.find(ctx, q, true)
		if err != nil {
			return err
		}
		for i := range found.Hits {
			l := &found.Hits[i].Line
			if err := v.line(ctx, found.Runs[l.Run], l); err != nil {
				return err
			}
		}
		if err := v.s.out.flush(); err != nil {
			return err
		}
		v.query.After, more = found.Next(), found.More
	}
	return nil
}

// find searches a part of the log.
func (v *logView) find(ctx context.Context, q logstore.Query, oldestFirst bool) (*logstore.Matches, error) {
	search := v.search
	search.Query, search.OldestFirst, search.MaxTime = q, oldestFirst, searchTime
	found, err := v.r.Search(ctx, search)
	if err == nil {
		v.searched.Add(found.Lines)
	}
	return found, err
}

// A logLine is a line in the output of pmcp logs --json, or a gap, which has Missing.
type logLine struct {
	Time    string `json:"time"`
	Project string `json:"project"`
	Process string `json:"process"`
	Run     int    `json:"run"`
	Stream  string `json:"stream,omitempty"`
	Level   string `json:"level,omitempty"`
	Text    string `json:"text"`
	Missing int64  `json:"missing_lines,omitempty"`
}

// page prints the matching lines of a page, and its gaps where they are.
func (v *logView) page(ctx context.Context, page *logstore.Page) error {
	gaps := gapsOf(page)
	for i := range page.Lines {
		l := &page.Lines[i]
		for _, g := range gaps[i] {
			if err := v.gap(ctx, page, g); err != nil {
				return err
			}
		}
		if v.match != nil && !v.match.MatchString(l.Text) {
			continue
		}
		if err := v.line(ctx, page.Runs[l.Run], l); err != nil {
			return err
		}
	}
	for _, g := range gaps[len(page.Lines)] {
		if err := v.gap(ctx, page, g); err != nil {
			return err
		}
	}
	return nil
}

// gapsOf returns the gaps of a page by the index of the line before which they stand. A gap stands before the next line
// of its run, else behind the line before it, else at the end.
func gapsOf(page *logstore.Page) map[int][]logstore.Gap {
	gaps := make(map[int][]logstore.Gap)
	for _, g := range page.Gaps {
		at := slices.IndexFunc(page.Lines, func(l logstore.Line) bool { return l.Run == g.Run && l.Number > g.After })
		if at < 0 {
			at = len(page.Lines)
			for i := range page.Lines {
				if l := &page.Lines[i]; l.Run == g.Run && l.Number == g.After {
					at = i + 1
				}
			}
		}
		gaps[at] = append(gaps[at], g)
	}
	return gaps
}

// line prints a line.
func (v *logView) line(ctx context.Context, run logstore.Run, l *logstore.Line) error {
	v.s.found = true
	if v.s.json {
		return v.s.out.json(logLine{
			Time: args.FormatTime(l.At), Project: run.Project, Process: run.Name, Run: run.Number,
			Stream: logstore.StreamNames[l.Stream], Level: l.Level.String(), Text: l.Text,
		})
	}
	return v.s.out.println(v.head(ctx, l.At, &run) + v.s.out.paint(levelColour(l.Level), line.Visible(l.Text)))
}

func levelColour(level line.Level) colour {
	switch {
	case level >= line.LevelError:
		return red
	case level == line.LevelWarn:
		return yellow
	}
	return ""
}

// gap prints what is known of missing lines.
func (v *logView) gap(ctx context.Context, page *logstore.Page, g logstore.Gap) error {
	run := page.Runs[g.Run]
	text := fmt.Sprintf("--- lines are missing: %d: %s ---", g.Lines, g.Reason)
	if g.Lines < 0 {
		text = fmt.Sprintf("--- lines are missing: %s ---", g.Reason)
	}
	if v.s.json {
		return v.s.out.json(logLine{Time: args.FormatTime(g.At), Project: run.Project, Process: run.Name, Run: run.Number, Text: text, Missing: g.Lines})
	}
	return v.s.out.println(v.head(ctx, g.At, &run) + v.s.out.paint(dim, text))
}

// nameColours distinguish the processes of a merged log.
var nameColours = []colour{cyan, green, yellow, "34", "35"}

// head returns what stands before the text of a line: its time and process.
func (v *logView) head(ctx context.Context, at time.Time, run *logstore.Run) string {
	if v.bare {
		return ""
	}
	at = at.Local()
	layout := time.TimeOnly
	if at.Format(time.DateOnly) != v.today {
		layout = time.DateTime
	}
	head := v.s.out.paint(dim, at.Format(layout)) + " "
	if !v.named {
		return head
	}
	name := v.r.name(ctx, run.Project, run.Name)
	sum := 0
	for _, b := range []byte(name) {
		sum += int(b)
	}
	if v.s.out.width > 0 {
		name = cut(name, max(minText, v.s.out.width/3))
	}
	return head + v.s.out.paint(nameColours[sum%len(nameColours)], name) + " | "
}
