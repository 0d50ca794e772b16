package project

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"pmcp/process"
)

// Bounds of a dialogue.
const (
	maxSteps        = 50
	maxExpect       = 1000 // bytes of an expected text
	stepTimeout     = 10 * time.Second
	dialogueTimeout = 45 * time.Second // of the steps without an own timeout
	maxDialogue     = 10 * time.Minute
)

// A Step is one step of a dialogue: it waits until the process has printed Expect, then
// sends Send. One of the two may be missing.
type Step struct {
	Expect    string  `json:"expect,omitempty" natural:"text"`
	Regex     bool    `json:"regex,omitempty"`
	Send      *string `json:"send,omitempty" empty:"kept" natural:"text"`
	Newline   *bool   `json:"newline,omitempty"`
	TimeoutMS int     `json:"timeout_ms,omitempty" min:"1" max:"600000"`
	// Secret means that Send is masked wherever it appears.
	Secret bool `json:"secret,omitempty"`

	pattern *regexp.Regexp // of Expect, if Regex is set; compiled by checkSteps
}

func (s *Step) timeout() time.Duration {
	if s.TimeoutMS > 0 {
		return time.Duration(s.TimeoutMS) * time.Millisecond
	}
	return stepTimeout
}

func (s *Step) quoted() string { return fmt.Sprintf("%.200q", s.Expect) }

// match returns where the first match in text ends, or -1.
func (s *Step) match(text string) (end int) {
	if s.pattern != nil {
		if at := s.pattern.FindStringIndex(text); at != nil {
			return at[1]
		}
		return -1
	}
	if at := strings.Index(text, s.Expect); at >= 0 {
		return at + len(s.Expect)
	}
	return -1
}

// learnSteps has the masker learn the secrets of steps. It returns a hint about those
// that cannot be masked, or "".
func (p *Project) learnSteps(steps []Step) (hint string) {
	var open []string
	for i, s := range steps {
		if s.Secret && s.Send != nil && *s.Send != "" && !p.o.Mask.LearnInput(*s.Send) {
			open = append(open, fmt.Sprintf("steps[%d].send", i))
		}
	}
	if len(open) == 0 {
		return ""
	}
	return strings.Join(open, ", ") + " is not masked in output: fewer than 8 bytes, a common word or a name of the project"
}

// checkSteps compiles the patterns of steps. It returns an error if the steps cannot be
// played as a whole.
func checkSteps(steps []Step) error {
	if len(steps) > maxSteps {
		return fmt.Errorf("argument steps: %d steps, at most %d are allowed", len(steps), maxSteps)
	}
	for i := range steps {
		if err := steps[i].check(); err != nil {
			return fmt.Errorf("argument steps[%d]%w", i, err)
		}
	}
	return nil
}

// check compiles the pattern of the step. The text of its error follows the name of
// the step.
func (s *Step) check() (err error) {
	switch {
	case s.Expect == "" && s.Send == nil:
		return errors.New(": want expect, send or both")
	case s.Expect == "" && s.Regex:
		return errors.New(".regex: it needs expect")
	case s.Expect == "" && s.TimeoutMS > 0:
		return errors.New(".timeout_ms: it needs expect; without it the step is sent at once")
	case s.Send == nil && (s.Secret || s.Newline != nil):
		return errors.New(": secret and newline need send")
	case len(s.Expect) > maxExpect:
		return fmt.Errorf(".expect: %d bytes, at most %d are allowed", len(s.Expect), maxExpect)
	case s.Send != nil && len(*s.Send) >= process.MaxInput:
		return fmt.Errorf(".send: %d bytes, fewer than %d are allowed", len(*s.Send), process.MaxInput)
	case !s.Regex && strings.ContainsAny(s.Expect, "\r\n"):
		return errors.New(".expect: it has a line break, but each line of output is searched by itself; expect the last line")
	case s.Regex:
		if s.pattern, err = regexp.Compile(s.Expect); err != nil {
			return fmt.Errorf(".expect: %w", err)
		}
	}
	return nil
}

func dialogueTime(steps []Step) time.Duration {
	all := dialogueTimeout
	for i := range steps {
		all += time.Duration(steps[i].TimeoutMS) * time.Millisecond
	}
	return min(all, maxDialogue)
}

// A StepError is the error of a dialogue that stopped at a step, which was not sent.
type StepError struct {
	Index, Steps int
	Cause        error
}

// Error names the step as the argument of a call.
func (e *StepError) Error() string { return fmt.Sprintf("steps[%d]: %v", e.Index, e.Cause) }

func (e *StepError) Unwrap() error { return e.Cause }
