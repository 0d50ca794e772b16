package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pmcp/health"
)

type checkHealthArgs struct {
	Process string `json:"process"`
}

// healthResult is the health of one process.
type healthResult struct {
	Name     string `json:"name"`
	Check    string `json:"check,omitempty"` // command, tcp or http
	Health   string `json:"health"`
	Since    string `json:"since,omitempty"`
	Failures int    `json:"failures,omitempty"`
	// NotRestarted says why an unhealthy process stays as it is.
	NotRestarted string         `json:"not_restarted,omitempty"`
	Results      []checkOutcome `json:"results,omitempty"`
	Hint         string         `json:"hint,omitempty"`
	Notice       string         `json:"notice,omitempty"`
}

type checkOutcome struct {
	At        string `json:"at"`
	TookMS    int64  `json:"took_ms"`
	Run       int    `json:"run"`
	OK        bool   `json:"ok"`
	Requested bool   `json:"requested,omitempty"`
	Message   string `json:"message"`
	Output    string `json:"output,omitempty"`
}

// healthOutput bounds what the checks of one process printed in an answer, in
// bytes; the latest have the first claim.
const healthOutput = defaultMaxBytes / 2

func ofHealth(st *health.Status) healthResult {
	r := healthResult{Name: st.Name, Check: st.Spec.Kind(), Health: st.State.String(), Since: formatTime(st.Since), Failures: st.Failures, NotRestarted: st.NotRestarted}
	if last := st.Last(); last != nil && !last.OK && st.State == health.Starting && st.Failures == 0 {
		r.Hint = fmt.Sprintf("failures do not count yet: start_period_ms is %d", st.Spec.StartPeriod.Milliseconds())
	}
	room := healthOutput
	for _, x := range slices.Backward(st.Results) {
		r.Results = append(r.Results, checkOutcome{
			At: formatTime(x.At), TookMS: x.Took.Milliseconds(), Run: x.Run, OK: x.OK, Requested: x.Requested, Message: x.Message,
			Output: cut(x.Output, len(x.Output), room),
		})
		room = max(0, room-len(x.Output))
		if x.Output != "" {
			r.Notice = outputNotice
		}
	}
	slices.Reverse(r.Results)
	return r
}

func (r healthResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.Name, r.Health)
	if r.Since != "" {
		fmt.Fprintf(&b, " since %s", r.Since)
	}
	if r.Failures > 0 {
		fmt.Fprintf(&b, ", %d failures in a row", r.Failures)
	}
	if r.NotRestarted != "" {
		fmt.Fprintf(&b, ", not restarted: %s", r.NotRestarted)
	}
	b.WriteString("\n")
	for _, x := range r.Results {
		verdict := "failed"
		if x.OK {
			verdict = "ok"
		}
		fmt.Fprintf(&b, "%s run %d %s in %d ms: %s\n", x.At, x.Run, verdict, x.TookMS, x.Message)
		if x.Output != "" {
			fmt.Fprintf(&b, "  [%s] %s\n", outputNotice, strings.ReplaceAll(strings.TrimSpace(x.Output), "\n", "\n  | "))
		}
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func checkProcessHealthTool() tool {
	return define(tool{
		name: "check_process_health", title: "Check health", toolset: setMonitoring,
		description: "Runs the health check of a process now.",
		hints:       hints{readOnly: true, openWorld: true},
		waits:       func(json.RawMessage) bool { return true },
	}, checkProcessHealth)
}

func checkProcessHealth(ctx context.Context, s *Server, a checkHealthArgs) (healthResult, error) {
	name, err := s.resolveName(ctx, a.Process)
	if err != nil {
		return healthResult{}, err
	}
	defer report(ctx, func() string { return "checking " + name })()
	st, err := s.o.Health.Check(ctx, name)
	switch {
	case errors.Is(err, health.ErrNoCheck):
		return s.uncheckedHere(ctx, name)
	case errors.Is(err, health.ErrNotRunning):
		if err := s.ownOnly(ctx, name); err != nil {
			return healthResult{}, err
		}
		r := ofHealth(&st)
		r.Name, r.Hint = name, "it does not run, so nothing was checked now"
		return r, nil
	case err != nil:
		return healthResult{}, err
	}
	return ofHealth(&st), nil
}

// uncheckedHere answers for a process that this session checks not at all: it has
// no check, is another server's or does not run.
func (s *Server) uncheckedHere(ctx context.Context, name string) (healthResult, error) {
	r := healthResult{Name: name, Health: "unchecked",
		Hint: `it has no check; start_process with its name and health: {"http": "/"}, {"tcp": "PORT"} or {"command": "…"} adds one without a restart`}
	if st, err := s.o.Manager.Status(name); err == nil && st.GoesOn() {
		return r, nil
	}
	if err := s.ownOnly(ctx, name); err != nil {
		return healthResult{}, err
	}
	if def, ok, err := s.definition(ctx, name); err == nil && ok && def.Health != nil {
		r.Health, r.Hint = health.Unknown.String(), "it does not run, so nothing was checked now"
	}
	return r, nil
}
