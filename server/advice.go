package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/project"
	"pmcp/server/stdio"
)

// advice maps errors to what the model can do about them. The first row that
// matches an error applies.
var advice = []struct {
	err  error
	text string
}{
	{logstore.ErrUnknownFault, "get_errors shows what there is"},
	{project.ErrOtherDefinition, "start_process with only its name accepts it as it is; restart_process with these arguments applies them"},
	{process.ErrTooMany, "stop_process ends one"},
	{process.ErrSurvivors, "these processes may belong to another user or hang in the kernel; pmcp tries again when it exits"},
	{process.ErrLeft, "stop_process ends them; if_running: \"restart\" ends them and starts it again"},
	{process.ErrCalledOff, "start_process with only its name runs it again"},
	{process.ErrClosed, "the session is over"},
	{logstore.ErrCursor, "pass a next_cursor or prev_cursor of an earlier answer unchanged, or \"start\""},
	{logstore.ErrPattern, "a regular expression is RE2, without lookaround and backreferences; a text is of one line"},
	{stdio.ErrSessionEnding, "it stops what it started, unless that is kept; list_processes shows what runs"},
	{context.DeadlineExceeded, "the call was cancelled or timed out; what it started continues"},
	{context.Canceled, "the call was cancelled or timed out; what it started continues"},
}

// openFilesAdvice returns advice that names the limit of open files, which a
// session with many processes may reach.
func openFilesAdvice() string {
	limit := "its limit of open files"
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		limit = fmt.Sprintf("its limit of %d open files", l.Cur)
	}
	return "pmcp has reached " + limit + " (RLIMIT_NOFILE; each process takes a few): stop_process ends one, and a higher `ulimit -Hn` where pmcp is started allows more"
}

// ended returns the error of a call with ctx: stdio.ErrSessionEnding in place of a cancellation
// that it caused, which was not the client's.
func ended(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), stdio.ErrSessionEnding) {
		return stdio.ErrSessionEnding
	}
	return err
}

// explain returns err as the text of an isError result: what happened, then what to
// do.
func explain(err error) string {
	text := errorText(err)
	var differs *process.DiffersError
	if errors.As(err, &differs) {
		return fmt.Sprintf("%s is already running with another definition, which differs in %s\nhint: if_running: \"restart\" stops it and starts the new one",
			differs.Name, strings.Join(differs.Fields, ", "))
	}
	var state *process.StateError
	if errors.As(err, &state) {
		switch {
		case state.Event == process.EventRemove:
			return text + "\nhint: stop_process it first"
		case !state.State.Live():
			return text + "\nhint: start_process with only its name runs it again"
		}
		return text + "\nhint: wait until that is done, or stop_process it first"
	}
	if errors.Is(err, unix.EMFILE) {
		return text + "\nhint: " + openFilesAdvice()
	}
	for _, row := range advice {
		if errors.Is(err, row.err) {
			return text + "\nhint: " + row.text
		}
	}
	return text
}

// maxErrorText is the most bytes of what went wrong in an error, which may quote an argument
// of any length.
const maxErrorText = 1000

// errorAnswer returns err as explain does, masked, and with its first line cut to maxErrorText
// bytes.
func (s *Server) errorAnswer(err error) string {
	text := s.o.Mask.Text(explain(err))
	what, rest, more := strings.Cut(text, "\n")
	if len(what) <= maxErrorText {
		return text
	}
	if text = cutMiddle(what, what, len(what), maxErrorText); more {
		text += "\n" + rest
	}
	return text
}

// withoutInvalid returns text without the text of process.ErrInvalid, which adds
// nothing to the message that follows it.
func withoutInvalid(text string) string {
	return strings.ReplaceAll(text, process.ErrInvalid.Error()+": ", "")
}
