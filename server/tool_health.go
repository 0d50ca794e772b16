package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pmcp/health"
	"pmcp/server/args"
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
	// NotRestarted is the reason why an unhealthy process is not restarted.
	NotRestarted string         `json:"not_restarted,omitempty"`
	Results      []checkOutcome `json:"results,omitempty"`
	Hint         string         `json:"hint,omitempty"`
	Notice       string         `json:"notice,omitempty"`
}

// checkOutcome is the result of one run of a check.
type checkOutcome struct {
	At        string `json:"at"`
	TookMS    int64  `json:"took_ms"`
	Run       int    `json:"run"`
	OK        bool   `json:"ok"`
	Requested bool   `json:"requested,omitempty"`
	Message   string `json:"message"`
	Output    string `json:"output,omitempty"`
}

// healthOutput bounds, in bytes, how much output of the checks of one process an
// answer shows. The latest checks take precedence.
const healthOutput = defaultMaxBytes / 2

// newHealthResult returns st in the form that answers show.
func newHealthResult(st *health.Status) healthResult {
	r := healthResult{Name: st.Name, Check: st.Spec.Kind(), Health: st.State.String(), Since: args.FormatTime(st.Since), Failures: st.Failures, NotRestarted: st.NotRestarted}
	if last := st.Last(); last != nil && !last.OK && st.State == health.Starting && st.Failures == 0 && st.Spec.StartPeriod > 0 {
		r.Hint = fmt.Sprintf("failures do not count yet: start_period_ms is %d", st.Spec.StartPeriod.Milliseconds())
	}
	room := healthOutput
	for _, x := range slices.Backward(st.Results) {
		r.Results = append(r.Results, checkOutcome{
			At: args.FormatTime(x.At), TookMS: x.Took.Milliseconds(), Run: x.Run, OK: x.OK, Requested: x.Requested, Message: x.Message,
			Output: cut(x.Output, room),
		})
		room = max(0, room-len(x.Output))
		if x.Output != "" {
			r.Notice = outputNotice
		}
	}
	slices.Reverse(r.Results)
	return r
}

func (r healthResult) write(t *answerText) {
	t.part("%s: %s", r.Name, r.Health)
	t.optPart(" since %s", r.Since)
	t.optPart(", %d failures in a row", r.Failures)
	t.optPart(", not restarted: %s", r.NotRestarted)
	t.line("")
	for _, x := range r.Results {
		verdict := "failed"
		if x.OK {
			verdict = "ok"
		}
		t.line("%s run %d %s in %d ms: %s", x.At, x.Run, verdict, x.TookMS, x.Message)
		t.output(quoteLines(x.Output), nil)
	}
	t.hint(r.Hint)
}

func checkProcessHealthTool() tool {
	return define(tool{
		name: "check_process_health", title: "Check health", toolset: setMonitoring,
		description: "Runs the health check of a process now.",
		hints:       hints{readOnly: true, openWorld: true},
	}, checkProcessHealth)
}

func checkProcessHealth(ctx context.Context, s *call, a checkHealthArgs) (healthResult, error) {
	name, err := s.project.ResolveOne(ctx, a.Process, s.reads)
	if err != nil {
		return healthResult{}, err
	}
	defer reportProgress(ctx, func() string { return "checking " + name })()
	st, err := s.project.CheckHealth(ctx, name)
	switch {
	case errors.Is(err, health.ErrNoCheck):
		return healthResult{Name: name, Health: "unchecked",
			Hint: `it has no check; start_process with its name and health: {"http": "/"}, {"tcp": "PORT"} or {"command": "…"} adds one without a restart`}, nil
	case errors.Is(err, health.ErrNotRunning):
		r := newHealthResult(&st)
		r.Name, r.Hint = name, "it is not running, so nothing was checked"
		return r, nil
	case err != nil:
		return healthResult{}, err
	}
	return newHealthResult(&st), nil
}
