package config

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"pmcp/registry/doctor"
)

// Flags are the flags of the command line.
type Flags struct {
	// Version, Doctor and NoGuardian are --version, --doctor and --no-guardian.
	Version, Doctor, NoGuardian bool
	// Report holds the flags that go with --doctor.
	Report doctor.Options
}

const usage = `pmcp %s: a process manager for LLM agents, an MCP server on stdin and stdout.

An MCP client starts it without flags; README.md shows how to configure one.
pmcp guard -- COMMAND [ARGUMENT...] runs another MCP server and leaves nothing of it behind.

Commands for a person, each with --help: ps, logs, errors, events, start, stop, restart, top, open, completion.

Flags:
`

// ParseFlags returns the flags in args; version is pmcp's. If it returns an error, it has written
// that error to stderr. The error is flag.ErrHelp after --help.
func ParseFlags(args []string, version string, stderr io.Writer) (o Flags, err error) {
	f := flag.NewFlagSet("pmcp", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.Version, "version", false, "print version, commit, Go and SQLite versions, and exit")
	f.BoolVar(&o.Doctor, "doctor", false, "list the pmcp servers of this user and what dead ones left, and exit: 0 clean, 1 something stale, 2 failed")
	o.Report.AddFlags(f)
	f.BoolVar(&o.NoGuardian, "no-guardian", false, "for debugging: serve in this process; when it is killed, its processes are left running")
	f.Usage = func() {
		fmt.Fprintf(stderr, usage, version)
		f.PrintDefaults()
		fmt.Fprint(stderr, "\nEnvironment variables:\n")
		printVariables(stderr)
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q after flags, see --help", f.Arg(0))
	} else if (o.Report.Cleanup || o.Report.JSON) && !o.Doctor {
		err = errors.New("--cleanup-stale-records and --json go with --doctor")
	}
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
	}
	return o, err
}
