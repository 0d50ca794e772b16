package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
)

// advice is the one mapping from errors to what the model can do about them.
// The first row whose error fits is taken.
var advice = []struct {
	err  error
	text string
}{
	{process.ErrUnknown, "list_processes shows what there is"},
	{logstore.ErrUnknownFault, "get_errors shows what there is"},
	{groups.ErrUnknown, "list_groups shows what there is"},
	{process.ErrTooMany, "stop_process ends one"},
	{process.ErrSurvivors, "what is named may be another user's or hang in the kernel; pmcp keeps trying when it ends"},
	{process.ErrCalledOff, "start_process with its name alone runs it again"},
	{process.ErrClosed, "the session is over"},
	{logstore.ErrCursor, "take a next_cursor or prev_cursor of an earlier answer as it was, or \"start\""},
	{logstore.ErrPattern, "with regex: RE2 syntax, no lookaround or backreferences; without: any text of one line"},
	{context.DeadlineExceeded, "the call was given up; what it began goes on"},
	{context.Canceled, "the call was given up; what it began goes on"},
}

// openFilesAdvice names the limit that a session with many processes runs into.
func openFilesAdvice() string {
	limit := "its limit of open files"
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		limit = fmt.Sprintf("its limit of %d open files", l.Cur)
	}
	return "pmcp has reached " + limit + " (RLIMIT_NOFILE; each process takes a few): stop_process ends one, and a higher `ulimit -Hn` where pmcp is started allows more"
}

// explain is err as the text of an isError result: what happened, what to do.
func explain(err error) string {
	text := withoutInvalid(err.Error())
	var differs *process.DiffersError
	if errors.As(err, &differs) {
		return fmt.Sprintf("%s runs already with another definition; what differs: %s\nhint: if_running: \"restart\" stops it and starts the new one",
			differs.Name, strings.Join(differs.Fields, ", "))
	}
	var state *process.StateError
	if errors.As(err, &state) {
		switch {
		case state.Event == process.EventRemove:
			return text + "\nhint: stop_process it first"
		case !state.State.Live():
			return text + "\nhint: start_process with its name alone runs it again"
		}
		return text + "\nhint: wait until it has settled, or stop_process it first"
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

// withoutInvalid is text without the words of process.ErrInvalid, which say
// nothing beside what they stand before.
func withoutInvalid(text string) string {
	return strings.ReplaceAll(text, process.ErrInvalid.Error()+": ", "")
}
