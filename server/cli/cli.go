package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"pmcp/logstore/line"
	"pmcp/server/args"
	"pmcp/server/config"
)

// The exit codes of commands.
const (
	exitFound  = 0
	exitNone   = 1
	exitFailed = 2
)

// otherNames are commands of other tools, and what they are called here.
var otherNames = map[string]string{
	"status": "ps", "list": "ps", "ls": "ps", "up": "start", "run": "start", "down": "stop", "kill": "stop", "log": "logs", "tail": "logs -f",
	"doctor": "--doctor", "version": "--version",
}

// IsCommand reports whether the arguments of pmcp are a command and not flags.
func IsCommand(arguments []string) bool {
	return len(arguments) > 0 && arguments[0] != "" && !strings.HasPrefix(arguments[0], "-")
}

// Run runs the command in args and returns its exit code. A signal that asks pmcp to
// end ends it, as it ends every program in a terminal.
func Run(ctx context.Context, arguments []string, stdout, stderr *os.File) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s := &screen{out: newTerminal(stdout), fd: stdout.Fd(), err: stderr, found: true}
	root := s.commands()
	root.SetArgs(arguments)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if e := s.out.flush(); err == nil {
		err = e
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, syscall.EPIPE): // the reader of a pipe has seen enough
	case errors.As(err, new(*noDatabaseError)):
		s.complain("pmcp: " + err.Error())
	case err != nil:
		s.complain("pmcp: " + err.Error())
		return exitFailed
	}
	if !s.found {
		return exitNone
	}
	return exitFound
}

// A screen is what one command prints to.
type screen struct {
	out   *terminal
	fd    uintptr // of stdout
	err   *os.File
	json  bool // --json
	found bool // the command need not find anything, or has found something
	where place
}

// A place is the projects that a command is about.
type place struct {
	all     bool   // --all
	project string // --project
}

// commands returns all commands.
func (s *screen) commands() *cobra.Command {
	root := &cobra.Command{
		Use: "pmcp", Short: "see what agents run", SilenceUsage: true, SilenceErrors: true,
		Long:    "See what agents run. An MCP client starts pmcp without arguments; pmcp --help has the flags and variables for that.",
		Example: "  pmcp ps\n  pmcp logs web -f",
		RunE: func(c *cobra.Command, arguments []string) error {
			if own := otherNames[arguments[0]]; own != "" {
				return fmt.Errorf("unknown command: %q; did you mean pmcp %s?", arguments[0], own)
			}
			var known []string
			for _, command := range c.Commands() {
				known = append(known, command.Name())
			}
			return fmt.Errorf("unknown command: %s; pmcp help lists the commands, pmcp --help the flags", args.QuoteWithNearest(arguments[0], known))
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; %s --help lists the flags", err, c.CommandPath())
	})
	reading := []*cobra.Command{s.psCommand(), s.logsCommand(), s.errorsCommand(), s.eventsCommand(), s.topCommand()}
	root.AddCommand(reading...)
	root.AddCommand(s.openCommand(), s.startCommand(), s.stopCommand(), s.restartCommand())
	for _, c := range reading {
		c.PreRun = func(*cobra.Command, []string) { s.found = false }
		c.Flags().BoolVar(&s.json, "json", false, "print one JSON object a line")
		c.Flags().BoolVarP(&s.where.all, "all", "a", false, "of every project")
		c.Flags().StringVar(&s.where.project, "project", "", "of this project: a path or a label (default: that of the current directory)")
		c.MarkFlagsMutuallyExclusive("all", "project")
	}
	root.InitDefaultCompletionCmd("completion") // as for that argument: there are commands
	if bash, _, err := root.Find([]string{"completion", "bash"}); err == nil {
		script := bash.RunE
		bash.RunE = func(c *cobra.Command, none []string) error {
			fmt.Fprint(c.OutOrStdout(), bashWords)
			return script(c, none)
		}
	}
	return root
}

// bashWords is what cobra's script for bash takes from the package bash-completion, for where
// that is not installed.
const bashWords = `declare -F _get_comp_words_by_ref >/dev/null || _get_comp_words_by_ref() {
    cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
}
`

// read returns a reader of the database. The caller closes it.
func (s *screen) read(ctx context.Context) (*reader, error) {
	c, err := config.Read()
	if err != nil {
		return nil, err
	}
	return openReader(ctx, &c, s.where, s.err)
}

// complain prints lines to stderr. They may have names of directories, which are untrusted.
func (s *screen) complain(text string) {
	for l := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(s.err, line.Visible(l))
	}
}

// whileRead returns a context that also ends when no process reads stdout, a pipe or a socket, any
// more: what follows a log would not notice before the next line. stop must be called.
func (s *screen) whileRead(ctx context.Context) (_ context.Context, stop func(), err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.fd), &st); err != nil {
		return ctx, nil, err
	}
	if kind := uint32(st.Mode) & unix.S_IFMT; kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return ctx, func() {}, nil
	}
	ended, end, err := os.Pipe()
	if err != nil {
		return ctx, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		for err := error(unix.EINTR); errors.Is(err, unix.EINTR); { // poll reports an error of stdout unasked
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(s.fd)}, {Fd: int32(ended.Fd()), Events: unix.POLLIN}}, -1)
		}
	})
	return ctx, func() {
		_ = end.Close()
		watching.Wait()
		_ = ended.Close()
	}, nil
}

func takesNone(c *cobra.Command, arguments []string) error {
	if len(arguments) > 0 {
		return fmt.Errorf("%s takes no names, got %.200q", c.CommandPath(), arguments[0])
	}
	return nil
}

func takesNames(c *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("name the processes: %s NAME…; pmcp ps lists them", c.CommandPath())
	}
	return nil
}

// sayNone says on stderr that a command that prints all there is has found nothing. One with a
// filter stays silent, as grep does.
func (s *screen) sayNone(r *reader, what string) {
	if s.found || s.json {
		return
	}
	if s.where.all {
		s.complain("no " + what + " in any project")
	} else {
		s.complain("no " + what + " in " + r.project.Dir() + "; --all shows those of every project")
	}
}

// completeNames returns the names of processes and groups, for the completion of a shell.
func (s *screen) completeNames(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.complete(cmd.Context(), false)
}

// complete is completeNames, with the names of what files of the project offer if offers is set.
func (s *screen) complete(ctx context.Context, offers bool) ([]string, cobra.ShellCompDirective) {
	r, err := s.read(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer r.Close()
	names, _ := r.names(ctx)
	names = append(names, r.groupNames(ctx)...)
	if offers {
		names = append(names, r.project.OfferedNames(ctx)...)
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
