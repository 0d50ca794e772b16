package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pmcp/process/prose"
	"pmcp/server/project"
)

// defaultInputWaitMS is how long send_input waits for output by default.
const defaultInputWaitMS = 1000

type sendInputArgs struct {
	Process    string         `json:"process"`
	Text       string         `json:"text,omitempty" natural:"text"`
	Newline    *bool          `json:"newline,omitempty" schema:"brief"`
	Keys       []string       `json:"keys,omitempty"`
	EOF        bool           `json:"eof,omitempty" jsonschema:"then close stdin"`
	Steps      []project.Step `json:"steps,omitempty" schema:"flat" jsonschema:"dialogue: expect, send; newline, regex, timeout_ms, secret"`
	WaitMS     *int           `json:"wait_ms,omitempty" min:"0" max:"600000"`
	outputArgs `schema:"brief"`
}

type sendInputResult struct {
	runResult
	Bytes int `json:"bytes"`
}

func sendInputTool() tool {
	return define(tool{
		name: "send_input", title: "Send input", toolset: setLifecycle,
		description: "Writes a line to stdin, presses keys (pty: down, ctrl-c) or answers questions, and returns what comes then.",
		hints:       hints{openWorld: true},
	}, sendInput)
}

func sendInput(ctx context.Context, s *call, a sendInputArgs) (r sendInputResult, err error) {
	switch {
	case len(a.Steps) > 0 && (a.Text != "" || a.Newline != nil || a.EOF || len(a.Keys) > 0):
		return r, errors.New("argument steps: it excludes text, newline, keys and eof; each step has its own send and newline")
	case len(a.Keys) > 0 && a.EOF:
		return r, errors.New("argument keys: it excludes eof; ctrl-d is the key for that")
	}
	name, err := s.project.ResolveOne(ctx, a.Process, s.reads)
	if err != nil {
		return r, err
	}
	request := project.InputRequest{Name: name, Text: a.Text, Enter: len(a.Keys) == 0 && (a.Text != "" || !a.EOF), EOF: a.EOF, Keys: a.Keys, Steps: a.Steps, Wait: defaultInputWaitMS * time.Millisecond}
	if a.Newline != nil {
		request.Enter = *a.Newline
	}
	if a.WaitMS != nil {
		request.Wait = time.Duration(*a.WaitMS) * time.Millisecond
	}
	defer s.reportStatus(ctx, name)()
	done, err := s.project.Input(ctx, request)
	var stopped *project.StepError
	if errors.As(err, &stopped) {
		return r, stepError(ctx, s.project, &done.Run, stopped, done.Hint, a.outputArgs)
	}
	if err != nil {
		return r, err
	}
	r = sendInputResult{runResult: newRunResult(&done.Run), Bytes: done.Bytes}
	r.Hint = prose.Join("; ", done.Hint, r.Hint)
	if done.Prompt && !done.Run.Over() {
		r.Hint = prose.Join("; ", "it is at a prompt", r.Hint)
	}
	if request.Wait == 0 {
		r.NextCursor = done.After
		return r, nil
	}
	err = addOutput(ctx, s.project, &r.runResult, &done.Run, excerpt{outputArgs: a.outputArgs, after: done.After})
	r.fit(a.limit())
	if done.Echo.Last > 0 { // the caller knows it: a wait does not match it
		r.seen = append([]project.ShownLines{done.Echo}, r.seen...)
	}
	return r, err
}

// stepError returns the error of a dialogue that stopped at a step, with the last output
// of the run.
func stepError(ctx context.Context, p *project.Project, run *project.Run, stopped *project.StepError, hint string, output outputArgs) error {
	r := newRunResult(run)
	r.Hint = prose.Join("; ", hint, r.Hint)
	if err := addOutput(ctx, p, &r, run, excerpt{outputArgs: output}); err != nil {
		return errors.Join(stopped, err)
	}
	if !run.Over() {
		r.Hint = prose.Join("; ", r.Hint, "send_input with the remaining steps continues")
	}
	r.setDeath(fmt.Sprintf("stopped at %v; nothing more was sent", stopped))
	r.fit(output.limit())
	return r.deathError()
}
