package project

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"pmcp/logstore"
	"pmcp/process"
)

// portLines is how many of the last lines of a run TakenPort reads, and portDetails how
// many lines after an error may name its port.
const (
	portLines   = 100
	portDetails = 8
)

var (
	// portInUse matches what programs print when they cannot listen on a port.
	portInUse = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)EADDRINUSE|AddrInUse|address (is )?(already )?in use|\bport\b.{0,40}\b(in use|already allocated|already taken)`)
	})
	// namedPort is a port that a line names as such, addressPort one in an address:
	// 127.0.0.1:3000, [::]:3000 or ('127.0.0.1', 3000).
	namedPort   = regexp.MustCompile(`(?i)\bport\b\W{0,3}(\d{1,5})\b`)
	addressPort = regexp.MustCompile(`(?::|', )(\d{2,5})\b`)
	// clock is a time of day, which is not an address.
	clock = regexp.MustCompile(`\b\d{2}:\d{2}:\d{2}\b`)
)

// TakenPort returns a sentence on the process that holds the port on which run could
// not listen, with a free port, or on closed connections that keep it, or "" if run has printed no such error and named no
// port that is taken. It reads the port from the error, else from PORT in the
// environment of run, else from its readiness rule. If the error names no port, each
// number in the arguments and in the environment that run was given may be one.
func (p *Project) TakenPort(ctx context.Context, run *Run) string {
	if run.Stored {
		return ""
	}
	page, err := p.Read(ctx, logstore.Query{Runs: []int64{run.RunID}, Limit: portLines, Newest: true})
	if err != nil {
		return ""
	}
	ports, failed := portsInUse(page.Lines)
	named := len(ports) > 0
	if failed {
		port, given := run.Spec.Env["PORT"]
		if !given {
			port = os.Getenv("PORT")
		}
		if n, err := strconv.Atoi(port); err == nil {
			ports = append(ports, n)
		}
	}
	if run.Over() { // what a live run still lacks is in its NotReady
		ports = append(ports, run.Spec.Ready.LocalPorts()...)
	}
	for _, port := range slices.Compact(ports) {
		// Without an error, its own survivors listen where they should.
		if held, pids := p.o.Manager.TakenPort(port, run.Spec.Name, failed); held != "" {
			return unsaid(held, run) + p.windowOf(ctx, pids)
		}
	}
	if failed && !named {
		for _, port := range givenPorts(&run.Spec) {
			if held, pids := p.o.Manager.TakenPort(port, run.Spec.Name, false); held != "" {
				return "the error names no port, but " + held + p.windowOf(ctx, pids)
			}
		}
	}
	if !failed {
		return ""
	}
	maybe := slices.Clone(ports)
	if !named {
		maybe = append(maybe, givenPorts(&run.Spec)...)
	}
	for _, port := range slices.Compact(maybe) {
		if kept := p.o.Manager.KeptPort(port, run.Spec.Name); kept != "" {
			return kept
		}
	}
	if len(ports) > 0 {
		return fmt.Sprintf("no process that can be seen listens on port %d now", ports[0])
	}
	return ""
}

// takenPorts returns the ports on which a run could not listen: those that its output names, else
// those that it may have been given. The Manager calls it.
func (p *Project) takenPorts(ctx context.Context, run int64, spec process.Spec) []int {
	page, err := p.of(spec.Name).Read(ctx, logstore.Query{Runs: []int64{run}, Limit: portLines, Newest: true})
	if err != nil {
		return nil
	}
	ports, failed := portsInUse(page.Lines)
	if failed && len(ports) == 0 {
		return givenPorts(&spec)
	}
	return ports
}

// givenPorts returns the first numbers in the arguments and the environment of s that may
// be ports.
func givenPorts(s *process.Spec) (numbers []int) {
	texts := slices.Clone(s.Args)
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		texts = append(texts, s.Env[key])
	}
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '.' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			n, err := strconv.Atoi(word)
			if err == nil && len(word) > 1 && n <= 65535 && !slices.Contains(numbers, n) && len(numbers) < maxPorts {
				numbers = append(numbers, n)
			}
		}
	}
	return numbers
}

// unsaid returns text without its first parts, as far as the run's NotReady has them: a run that has not ended
// is shown with that.
func unsaid(text string, run *Run) string {
	for end := len(text); end > 0 && !run.Over(); end = strings.LastIndex(text[:end], "; ") {
		if strings.Contains(run.NotReady, text[:end]) {
			return strings.TrimPrefix(text[end:], "; ")
		}
	}
	return text
}

// windowOf returns, as the end of a sentence, which process of another window has its
// first process among pids, or "".
func (p *Project) windowOf(ctx context.Context, pids []int) string {
	if len(pids) == 0 {
		return ""
	}
	runs, err := p.o.Store.freshRuns(ctx, logstore.RunFilter{Current: true})
	if err != nil {
		return "" // the holder itself is named
	}
	for i := range runs {
		if run := stored(&runs[i]); run.Owner != nil && slices.Contains(pids, run.PID) {
			return fmt.Sprintf("; the holder is %s, owned by the pmcp server %s", run.Spec.Name, run.Owner)
		}
	}
	return ""
}

// portsInUse returns the ports that lines name as in use, the last first. failed
// reports whether a line states that an address is in use, whether or not a port is
// named.
func portsInUse(lines []logstore.Line) (ports []int, failed bool) {
	for i := range slices.Backward(lines) {
		text := clock.ReplaceAllString(lines[i].Text, "")
		if !portInUse().MatchString(text) {
			continue
		}
		failed = true
		found := namedPort.FindAllStringSubmatch(text, -1)
		if found == nil {
			found = addressPort.FindAllStringSubmatch(text, -1)
		}
		for j := i + 1; found == nil && j < min(len(lines), i+portDetails); j++ {
			found = namedPort.FindAllStringSubmatch(lines[j].Text, -1)
		}
		for _, m := range slices.Backward(found) { // the first numbers of a line may be a time
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && n <= 65535 {
				ports = append(ports, n)
			}
		}
	}
	return ports, failed
}
