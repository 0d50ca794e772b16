package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
)

// DoctorOptions says what Doctor looks at and how it answers. Dir is required.
type DoctorOptions struct {
	// Dir is the registry directory.
	Dir string
	// Cleanup stops what dead servers left running and removes their records;
	// without it nothing is changed.
	Cleanup bool
	// JSON prints one JSON object instead of text.
	JSON bool
	// MaxServers is the number of live servers above which Doctor warns; 0
	// means 9.
	MaxServers int
	// Command is how this program is called in the commands that Doctor
	// prints, quoted for a shell; empty means the path of its executable.
	Command string
	// Database is the path of the log database: Doctor tells its size and
	// whether its directory is writable. Empty leaves that out.
	Database string
	// Allowed are the entries of the allowlist of executables, each checked to
	// exist.
	Allowed []string
	// Checks are further checks, run in order after Doctor's own.
	Checks []Check
}

// Check is one question that Doctor asks about the machine.
type Check struct {
	// Name says what is looked at, in a word or two.
	Name string
	// Run answers with a short text, and with an error if something is wrong
	// that the user should repair. It gets 10 s.
	Run func(ctx context.Context) (string, error)
}

// The codes that Doctor answers with.
const (
	doctorClean  = 0
	doctorFound  = 1 // something stale was found and left, or a check failed
	doctorFailed = 2 // the registry could not be read, or the answer not written
)

const (
	defaultMaxServers = 9
	checkLimit        = 10 * time.Second
)

// Doctor shows the registry on w: a row for each server and for each file that
// does not belong there, what dead servers left running, the commands that
// would clean up, and what it found in checking the surroundings. It needs no
// running server and, without Cleanup, changes nothing.
//
// The answer is the code to exit with: 0 clean; 1 something stale was found and
// left, or a check failed; 2 the registry cannot be read or w not be written to.
func Doctor(w io.Writer, o DoctorOptions) (exitCode int) {
	if o.MaxServers == 0 {
		o.MaxServers = defaultMaxServers
	}
	if o.Command == "" {
		o.Command = ownCommand()
	}
	d := diagnose(context.Background(), o)
	write := d.print
	if o.JSON {
		write = d.printJSON
	}
	if err := write(w); err != nil {
		return doctorFailed
	}
	return d.ExitCode
}

// ownCommand is this program as a shell would be told to run it.
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

// diagnosis is all that Doctor found, as --json shows it.
type diagnosis struct {
	// Registry is the directory; Error is why it could not be read.
	Registry string `json:"registry"`
	Error    string `json:"error,omitempty"`
	// Live, Stale and Foreign count the rows.
	Live    int `json:"live"`
	Stale   int `json:"stale"`
	Foreign int `json:"foreign"`
	// Rows are the servers, ordered by pid, and the files that are none.
	Rows []row `json:"servers"`
	// Cleanup is what was done, nil if nothing was to be done.
	Cleanup *cleanup `json:"cleanup,omitempty"`
	// Advice is what the user should know or do, a line each.
	Advice []string `json:"advice,omitempty"`
	Checks []result `json:"checks"`
	// ExitCode is what the program exits with.
	ExitCode int `json:"exit_code"`
}

// cleanup is what a sweep did, in words.
type cleanup struct {
	Removed   []string `json:"removed_sessions"`
	Stopped   []member `json:"stopped"`
	Remaining []member `json:"remaining"`
	Busy      bool     `json:"busy,omitempty"`
	Error     string   `json:"error,omitempty"`
}

func diagnose(ctx context.Context, o DoctorOptions) *diagnosis {
	d := &diagnosis{Registry: o.Dir, Rows: []row{}}
	if o.Cleanup {
		d.clean(ctx, o)
	}
	list, err := listSettled(ctx, o.Dir, slog.New(slog.DiscardHandler))
	if err != nil {
		d.Error = err.Error()
	}
	s := survey(list)
	for _, e := range list {
		d.add(s.row(e, o))
	}
	d.advise(o)
	d.check(ctx, o, list)
	d.ExitCode = d.exitCode()
	return d
}

func (d *diagnosis) clean(ctx context.Context, o DoctorOptions) {
	swept, err := Sweep(ctx, o.Dir, nil)
	if err == nil && len(swept.Sessions)+len(swept.Remaining) == 0 && !swept.Busy {
		return
	}
	d.Cleanup = &cleanup{
		Removed:   append([]string{}, swept.Sessions...),
		Stopped:   members(swept.Stopped),
		Remaining: members(swept.Remaining),
		Busy:      swept.Busy,
	}
	if err != nil {
		d.Cleanup.Error = err.Error()
	}
}

func members(left []Leftover) []member {
	list := []member{}
	for _, l := range left {
		list = append(list, member{PID: l.ID.PID, Name: l.Name, Session: l.Session, State: l.Why})
	}
	return list
}

func (d *diagnosis) add(r row) {
	switch r.State {
	case Live:
		d.Live++
	case Stale:
		d.Stale++
	case Foreign:
		d.Foreign++
	}
	d.Rows = append(d.Rows, r)
}

func (d *diagnosis) advise(o DoctorOptions) {
	if d.Live > o.MaxServers {
		d.Advice = append(d.Advice, fmt.Sprintf("%d servers are alive, more than %d: close clients that are not used; a row whose client is gone says how to end its server", d.Live, o.MaxServers))
	}
	if d.Stale > 0 && !o.Cleanup {
		d.Advice = append(d.Advice, fmt.Sprintf("%s stops what dead servers left running, as listed above, and removes their records", cleanupCommand(o)))
	}
}

func cleanupCommand(o DoctorOptions) string { return o.Command + " --doctor --cleanup-stale-records" }

func (d *diagnosis) exitCode() int {
	if d.Error != "" {
		return doctorFailed
	}
	for _, c := range d.Checks {
		if c.Error != "" {
			return doctorFound
		}
	}
	if d.Stale > 0 || d.Cleanup != nil && (d.Cleanup.Error != "" || d.Cleanup.Busy) {
		return doctorFound
	}
	return doctorClean
}

func (d *diagnosis) printJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(d)
}
