package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"pmcp/registry"
)

// Options configure Run. Dir is required.
type Options struct {
	// Dir is the registry directory.
	Dir string
	// Cleanup stops what dead servers left running and removes their records.
	// Without it, Run changes nothing.
	Cleanup bool
	// JSON makes Run write one JSON object instead of text.
	JSON bool
	// MaxServers is the number of live servers above which Run warns; 0 means never.
	MaxServers int
	// Database is the path of the log database. Run shows its size and checks
	// that its directory is writable. Empty skips this check.
	Database string
	// Allowed are the entries of the allowlist of executables. Run checks that
	// each exists.
	Allowed []string
	// Mask returns the arguments of a guarded command without their secrets; nil shows them
	// as they are.
	Mask func(argv []string) []string
	// Checks are further checks, run in order after Run's own.
	Checks []Check
}

// AddFlags adds the flags that go with --doctor to f, which set o.
func (o *Options) AddFlags(f *flag.FlagSet) {
	f.BoolVar(&o.Cleanup, "cleanup-stale-records", false, "with --doctor: remove records of dead servers and stop the processes that those left running")
	f.BoolVar(&o.JSON, "json", false, "with --doctor: print JSON")
}

// A Check examines one thing on the machine.
type Check struct {
	// Name is what is checked, in a word or two.
	Name string
	// Run returns a short text, and an error if something is wrong that the
	// user should repair. Its context ends after 10 s.
	Run func(ctx context.Context) (string, error)
}

// The exit codes that Run returns.
const (
	exitClean  = 0 // nothing is stale or wrong
	exitFound  = 1 // something stale was found and left, a server is stopped, or a check failed
	exitFailed = 2 // the registry could not be read, or the report not written
)

// checkLimit is how long a check may take.
const checkLimit = 10 * time.Second

// Run writes a report on the registry to w: a row for each server and for each
// file that does not belong there, what dead servers left running, the commands
// that would clean up, and the results of the checks. It returns one of the exit
// codes above.
func Run(w io.Writer, o Options) (exitCode int) {
	r := newReport(context.Background(), o)
	var err error
	if o.JSON {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		err = out.Encode(r)
	} else {
		err = r.print(w)
	}
	if err != nil {
		return exitFailed
	}
	return r.ExitCode
}

// ownCommand returns the path of this program, quoted for a shell if need be.
func ownCommand() string {
	path, err := os.Executable()
	if err != nil {
		return "pmcp"
	}
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,@%") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// A report is all that Run found, as --json shows it.
type report struct {
	// Registry is the directory; Error is why it could not be read.
	Registry string `json:"registry"`
	Error    string `json:"error,omitempty"`
	// Live, Guards, Stale and Foreign count the rows: Live the servers that are alive, Guards
	// the guards of other commands.
	Live    int `json:"live"`
	Guards  int `json:"guards,omitempty"`
	Stale   int `json:"stale"`
	Foreign int `json:"foreign"`
	// Rows are the servers, ordered by pid, then the foreign files.
	Rows []row `json:"servers"`
	// Strays are processes of sessions of which there is no record.
	Strays []member `json:"strays,omitempty"`
	// Cleanup is what the clean-up did; nil if there was nothing to clean up.
	Cleanup *cleanup `json:"cleanup,omitempty"`
	// Advice is what the user should know or do, a line each.
	Advice []string `json:"advice,omitempty"`
	Checks []result `json:"checks"`
	// ExitCode is the code that the program exits with.
	ExitCode int `json:"exit_code"`
}

type cleanup struct {
	Removed   []string `json:"removed_sessions"`
	Stopped   []member `json:"stopped"`
	Remaining []member `json:"remaining"`
	Busy      bool     `json:"busy,omitempty"`
	// Unfinished is set if something may be left that was not seen.
	Unfinished bool   `json:"unfinished,omitempty"`
	Error      string `json:"error,omitempty"`
}

// newReport cleans up if o asks for it, examines registry and machine, and returns
// the report.
func newReport(ctx context.Context, o Options) *report {
	r := &report{Registry: o.Dir, Rows: []row{}}
	if o.Cleanup {
		r.clean(ctx, o)
	}
	entries, err := registry.ListSettled(ctx, o.Dir, slog.New(slog.DiscardHandler))
	r.Error = errorText(err)
	table := takeSnapshot(entries, o)
	for _, l := range table.strays {
		r.Strays = append(r.Strays, member{PID: l.ID.PID, Name: l.Name, State: "running"})
	}
	counts := map[registry.State]*int{registry.Live: &r.Live, registry.Stale: &r.Stale, registry.Foreign: &r.Foreign}
	for _, e := range entries {
		if e.State == registry.Live && len(e.Record.Guards) > 0 {
			r.Guards++
		} else {
			*counts[e.State]++
		}
		r.Rows = append(r.Rows, table.row(e))
	}
	r.advise(o)
	r.check(ctx, o, entries)
	r.ExitCode = r.exitCode()
	return r
}

// clean sweeps the registry and adds what the sweep did to the report.
func (r *report) clean(ctx context.Context, o Options) {
	swept, err := registry.SweepStrays(ctx, o.Dir, nil)
	err = errors.Join(err, registry.RemoveDaemonLogs(o.Dir))
	if err == nil && len(swept.Sessions)+len(swept.Remaining)+len(swept.Stopped) == 0 && !swept.Busy && !swept.Unfinished {
		return
	}
	r.Cleanup = &cleanup{
		Removed:    append([]string{}, swept.Sessions...),
		Stopped:    members(swept.Stopped),
		Remaining:  members(swept.Remaining),
		Busy:       swept.Busy,
		Unfinished: swept.Unfinished,
		Error:      errorText(err),
	}
}

func members(left []registry.Leftover) []member {
	list := []member{}
	for _, l := range left {
		list = append(list, member{PID: l.ID.PID, Name: l.Name, Session: l.Session, State: l.Why})
	}
	return list
}

// advise adds what the user should do to the report.
func (r *report) advise(o Options) {
	if o.MaxServers > 0 && r.Live > o.MaxServers {
		r.Advice = append(r.Advice, fmt.Sprintf("%d servers are alive, more than %d: close clients that are not used; a row whose client is gone says how to end its server", r.Live, o.MaxServers))
	}
	old := map[string][]string{} // pids by what happened to their program
	for i := range r.Rows {
		if why := r.Rows[i].outdated; why != "" {
			old[why] = append(old[why], strconv.Itoa(r.Rows[i].PID))
		}
	}
	for _, why := range slices.Sorted(maps.Keys(old)) {
		r.Advice = append(r.Advice, "the program of "+strings.Join(old[why], ", ")+" "+why)
	}
	if len(r.Strays) > 0 && !o.Cleanup {
		r.Advice = append(r.Advice, fmt.Sprintf("%s stops the stray processes, which a session without a record has left", cleanupCommand()))
	}
	if slices.ContainsFunc(r.Rows, func(row row) bool { return row.CleanCommand == cleanupCommand() }) {
		r.Advice = append(r.Advice, fmt.Sprintf("%s stops what dead servers left running, as listed above, and removes their records", cleanupCommand()))
	}
}

func cleanupCommand() string { return ownCommand() + " --doctor --cleanup-stale-records" }

func (r *report) exitCode() int {
	if r.Error != "" {
		return exitFailed
	}
	for _, c := range r.Checks {
		if c.Error != "" {
			return exitFound
		}
	}
	stopped := slices.ContainsFunc(r.Rows, func(row row) bool { return row.stopped })
	if stopped || r.Stale+len(r.Strays) > 0 || r.Cleanup != nil && (r.Cleanup.Error != "" || r.Cleanup.Busy || r.Cleanup.Unfinished) {
		return exitFound
	}
	return exitClean
}
