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

// ParseFlags returns the flags in args; version is pmcp's. After --help it has written the help to stdout, and the
// error is flag.ErrHelp. It has written any other error to stderr.
func ParseFlags(args []string, version string, stdout, stderr io.Writer) (o Flags, err error) {
	f := flag.NewFlagSet("pmcp", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.Version, "version", false, "print version, commit, Go and SQLite versions, and exit")
	f.BoolVar(&o.Doctor, "doctor", false, "list the pmcp servers of this user and what dead ones left, and exit: 0 clean, 1 something stale, 2 failed")
	o.Report.AddFlags(f)
	f.BoolVar(&o.NoGuardian, "no-guardian", false, "for debugging: serve in this process; when it is killed, its processes are left running")
	err = f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, usage, version)
		f.SetOutput(stdout)
		f.PrintDefaults()
		fmt.Fprint(stdout, "\nEnvironment variables:\n")
		printVariables(stdout)
		return o, err
	case err != nil:
		err = fmt.Errorf("%w; pmcp --help lists the flags", err)
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q after flags, see --help", f.Arg(0))
	case (o.Report.Cleanup || o.Report.JSON) && !o.Doctor:
		err = errors.New("--cleanup-stale-records and --json go with --doctor")
	}
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
	}
	return o, err
}
