package registry

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// print writes the diagnosis as text: a line a server, what belongs to it
// indented below.
func (d *diagnosis) print(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "registry %s: %d live, %d stale", d.Registry, d.Live, d.Stale)
	if d.Foreign > 0 {
		fmt.Fprintf(&out, ", %d foreign", d.Foreign)
	}
	fmt.Fprintln(&out)
	if d.Error != "" {
		fmt.Fprintln(&out, "error:", d.Error)
	}
	d.Cleanup.print(&out)
	for _, r := range d.Rows {
		r.print(&out)
	}
	for _, line := range d.Advice {
		fmt.Fprintln(&out, "advice:", line)
	}
	for _, c := range d.Checks {
		if c.Error != "" {
			fmt.Fprintf(&out, "check %s: PROBLEM %s\n", c.Name, c.Error)
		} else {
			fmt.Fprintf(&out, "check %s: ok %s\n", c.Name, c.Text)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (c *cleanup) print(out *bytes.Buffer) {
	if c == nil {
		return
	}
	for _, m := range c.Stopped {
		fmt.Fprintf(out, "stopped pid=%d name=%s session=%s\n", m.PID, quoted(m.Name), m.Session)
	}
	for _, id := range c.Removed {
		fmt.Fprintf(out, "removed the record of session %s\n", id)
	}
	for _, m := range c.Remaining {
		fmt.Fprintf(out, "left pid=%d name=%s session=%s: %s\n", m.PID, quoted(m.Name), m.Session, m.State)
	}
	if c.Busy {
		fmt.Fprintln(out, "another clean-up is at work; nothing was done")
	}
	if c.Error != "" {
		fmt.Fprintln(out, "error:", c.Error)
	}
}

func (r row) print(out *bytes.Buffer) {
	field := func(name string, value any) { fmt.Fprintf(out, " %s=%v", name, value) }
	fmt.Fprintf(out, "pid=%s", known(r.PID))
	field("state", r.State)
	field("alive", r.Alive)
	if r.PID != 0 {
		r.printRecord(field)
	}
	field("record", quoted(r.Record))
	if r.Problem != "" {
		field("problem", quoted(r.Problem))
	}
	fmt.Fprintln(out)
	if len(r.Children) > 0 {
		fmt.Fprintln(out, "  processes:", list(r.Children))
	}
	if r.CleanCommand != "" {
		fmt.Fprintln(out, "  clean:", r.CleanCommand)
	}
}

func (r row) printRecord(field func(name string, value any)) {
	match := "unknown"
	if r.ExecutableMatch != nil {
		match = strconv.FormatBool(*r.ExecutableMatch)
	}
	field("executable_match", match)
	field("transport", quoted(r.Transport))
	field("client", quoted(r.Client))
	field("version", quoted(r.Version))
	field("uptime", time.Duration(r.UptimeSeconds)*time.Second)
	field("cwd", quoted(r.Cwd))
	field("guardian", known(r.GuardianPID))
	field("parent_at_start", known(r.ParentAtStart))
	field("parent_name", quoted(r.ParentName))
	field("parent_now", known(r.ParentNow))
	field("parent_alive", r.ParentAlive)
	field("process_group_at_start", known(r.PGIDAtStart))
	field("process_group_now", known(r.PGIDNow))
	field("stale_client", r.StaleClient)
}

func list(members []member) string {
	var words []string
	for _, m := range members {
		words = append(words, fmt.Sprintf("%d %s (%s)", m.PID, quoted(m.Name), m.State))
	}
	return strings.Join(words, ", ")
}

// known is "-" for a pid or group that is not known.
func known(id int) string {
	if id == 0 {
		return "-"
	}
	return strconv.Itoa(id)
}

// quoted keeps a value one word on one line: names of processes, clients and
// directories are other people's.
func quoted(s string) string {
	if s == "" {
		return "-"
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == '"' || c == '=' || c > '~' }) {
		return strconv.Quote(s)
	}
	return s
}
