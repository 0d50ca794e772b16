package project

import (
	"pmcp/process"
	"pmcp/process/command"
)

// The conditions that a call can wait for.
const (
	UntilStarted = "started"
	UntilReady   = "ready"
	UntilExit    = "exit"
)

// A StartRequest is what a call that starts a process asks for.
type StartRequest struct {
	Name string
	// Definition is merged over the stored one if it has no command, or if Restart is
	// set.
	Definition Definition
	// Wait is what the caller will wait for; "" stands for readiness if the process has
	// a readiness rule, else for the start.
	Wait      string
	IfRunning process.IfRunning
	// Restart means that the process is to be restarted with any changed arguments.
	Restart bool
	// Steps are what Play is to play then. They are checked before the start.
	Steps []Step
	// Unnamed means that Name was made by UnnamedName. Start wraps ErrNameTaken if the
	// name has been taken since.
	Unnamed bool
	// From is the file that offers the program of Definition, and Hint what that file asks
	// for and the start leaves out; see TakeOffered.
	From, Hint string
	// Keep is how long the process outlives the session: a duration, "session" for not at
	// all, or "" for what holds without it.
	Keep string
}

// Started is the outcome of a start.
type Started struct {
	Run     Run
	Wait    string   // what to wait for
	Already bool     // the process was running already
	Changed []string // the arguments that were changed without a restart
	Hint    string   // about the steps of the request
	Ended   string   // which processes of an earlier run the start has ended, or ""
	// Line is what the command line was read as, if it was given without args.
	Line command.Line
}

// launchOptions control the start of a definition.
type launchOptions struct {
	// If exits is set, the call waits for the end of the process. If ready is set,
	// the call waits for readiness; without a readiness rule, any port makes the
	// process ready.
	exits, ready bool
	ifRunning    process.IfRunning
	removed      []string // arguments that the call removes from the definition
	unnamed      bool     // see StartRequest.Unnamed
	keep         string   // see StartRequest.Keep
	changed      bool     // its files have changed: see restartChanged
	last         *Run     // what Find returned a moment ago; nil: not read
}
