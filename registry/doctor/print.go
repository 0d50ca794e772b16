package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"pmcp/process/proctab"
	"pmcp/registry"
)

// rowFields are the JSON fields that the text shows of a row, in this order.
var rowFields = []string{
	"pid", "state", "alive", "guards", "executable_match", "executable_replaced", "transport", "client", "version", "uptime_seconds", "started_at", "cwd",
	"guardian_pid", "parent_at_start", "parent_name", "parent_now", "parent_alive", "client_answered_at",
	"process_group_at_start", "process_group_now", "stale_client", "dies_with", "record", "socket", "problem",
}

// fileFields are the JSON fields that the text shows of a file that is not a record.
var fileFields = []string{"state", "alive", "record", "problem"}

// A textReport is a report as text while it is written.
type textReport struct{ bytes.Buffer }

// line appends a line. Names of directories, processes and clients cannot break out
// of it.
func (t *textReport) line(format string, args ...any) {
	t.WriteString(proctab.Printable(fmt.Sprintf(format, args...)) + "\n")
}

// print writes the report as text: one line for each server, and what belongs to it
// indented below.
func (r *report) print(w io.Writer) error {
	var t textReport
	more := ""
	if r.Guards > 0 {
		more = fmt.Sprintf(", %d guarding a command", r.Guards)
	}
	if r.Foreign > 0 {
		more += fmt.Sprintf(", %d foreign", r.Foreign)
	}
	t.line("registry %s: %d live, %d stale%s", r.Registry, r.Live, r.Stale, more)
	if r.Error != "" {
		t.line("error: %s", r.Error)
	}
	if r.Cleanup != nil {
		r.Cleanup.print(&t)
	}
	if len(r.Strays) > 0 {
		t.line("stray processes: %s", joinMembers(r.Strays))
	}
	for _, server := range r.Rows {
		fields := rowFields
		if server.PID == 0 { // no record was read, so nothing is known of a server
			fields = fileFields
		}
		t.line("%s", fieldsText(server, fields...))
		if len(server.Children) > 0 {
			t.line("  processes: %s", joinMembers(server.Children))
		}
		if server.CleanCommand != "" {
			t.line("  clean: %s", server.CleanCommand)
		}
	}
	for _, line := range r.Advice {
		t.line("advice: %s", line)
	}
	for _, c := range r.Checks {
		if c.Error != "" {
			t.line("check %s: PROBLEM %s", c.Name, c.Error)
		} else {
			t.line("check %s: ok %s", c.Name, c.Text)
		}
	}
	_, err := w.Write(t.Bytes())
	return err
}

func (c *cleanup) print(t *textReport) {
	for _, m := range c.Stopped {
		t.line("stopped %s", fieldsText(m, "pid", "name", "session"))
	}
	for _, id := range c.Removed {
		t.line("removed the record of session %s", id)
	}
	for _, m := range c.Remaining {
		t.line("left %s: %s", fieldsText(m, "pid", "name", "session"), m.State)
	}
	if c.Unfinished {
		t.line("unfinished: %s", registry.UnfinishedProblem)
	}
	if c.Busy {
		t.line("another clean-up is running; nothing was done")
	}
	if c.Error != "" {
		t.line("error: %s", c.Error)
	}
}

// fieldsText returns the named JSON fields of v as text, without those that the JSON
// leaves out. The names lose the suffix _pid; seconds become text such as 1h2m3s.
func fieldsText(v any, names ...string) string {
	encoded, _ := json.Marshal(v) // rows and members always encode
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(encoded, &fields)
	var words []string
	for _, name := range names {
		raw, known := fields[name]
		if !known {
			continue
		}
		value := string(raw)
		var text string
		if json.Unmarshal(raw, &text) == nil {
			value = quoted(text)
		}
		name, seconds := strings.CutSuffix(name, "_seconds")
		if seconds {
			value += "s"
			if d, err := time.ParseDuration(value); err == nil {
				value = d.String()
			}
		}
		words = append(words, strings.TrimSuffix(name, "_pid")+"="+value)
	}
	return strings.Join(words, " ")
}

func joinMembers(members []member) string {
	var words []string
	for _, m := range members {
		words = append(words, fmt.Sprintf("%d %s (%s)", m.PID, quoted(m.Name), m.State))
	}
	return strings.Join(words, ", ")
}

// quoted returns s as one word, in quotes if need be: other programs choose the
// names of processes, clients and directories.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == '"' || c == '=' || c > '~' }) {
		return strconv.Quote(s)
	}
	return s
}
