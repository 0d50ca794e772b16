package project

import (
	"context"
	"errors"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/sources"
)

const (
	commitTime  = 2 * time.Second // to find the commit at which a run starts
	gitOutput   = 1 << 20         // bytes
	firstOutput = 200             // lines at the start of a run, in which a watcher says what it is
	laterOutput = 500             // lines since a change, in which it says what it does
)

// LookAtSources sets Changed of those runs that are running, and Head of those that may have old code.
func (p *Project) LookAtSources(ctx context.Context, runs ...*Run) {
	var running []*Run
	var elsewhere []process.ElsewhereRun
	var here []int64
	for _, r := range runs {
		if r.State != process.Running || r.Over() {
			continue
		}
		running = append(running, r)
		if r.Owner != nil {
			elsewhere = append(elsewhere, r.elsewhere())
		} else {
			here = append(here, r.RunID)
		}
	}
	trees, own := process.ProgramsElsewhere(elsewhere), p.o.Manager.Programs(here...)
	looks := make([]sources.Run, len(running))
	for i, r := range running {
		programs := trees[r.RunID]
		if r.Owner == nil {
			programs = own[r.RunID]
		}
		looks[i] = p.sourcesOf(ctx, r, programs)
	}
	for i, changed := range sources.Look(ctx, gitOf(p.o.Manager), looks) {
		r := running[i]
		if r.Changed = changed; r.Commit == "" || changed.Current {
			continue
		}
		if head := sources.Head(r.Spec.Dir); head != "" && !strings.HasPrefix(r.Commit, head) {
			r.Head = head
		}
	}
}

// sourcesOf returns what a look needs to know of a run and the processes of its tree.
func (p *Project) sourcesOf(ctx context.Context, r *Run, tree []process.Program) sources.Run {
	look := sources.Run{Executable: r.Executable, Commit: r.Commit, Programs: []sources.Program{{Command: strings.Join(append([]string{r.Executable}, r.Spec.Args...), " "), Dir: r.Spec.Dir, Started: r.StartedAt}}}
	for _, one := range tree {
		started := one.Started
		if started.Before(r.StartedAt) {
			started = r.StartedAt
		}
		look.Programs = append(look.Programs, sources.Program{Command: one.Command, Dir: one.Dir, Started: started})
	}
	look.Reloads = func(since time.Time) bool {
		for i := range tree {
			if tree[i].WatchesFiles() {
				return true
			}
		}
		return p.saysReload(ctx, logstore.Query{Runs: []int64{r.RunID}, Limit: firstOutput}) ||
			p.saysReload(ctx, logstore.Query{Runs: []int64{r.RunID}, Limit: laterOutput, Since: since, Newest: true})
	}
	return look
}

// saysReload reports whether a line of the output that q selects says that its program loads again what has changed.
func (p *Project) saysReload(ctx context.Context, q logstore.Query) bool {
	q.Streams = 1<<logstore.Stdout | 1<<logstore.Stderr
	page, err := p.Read(ctx, q)
	if err != nil {
		return true // nothing is known
	}
	for i := range page.Lines {
		if sources.SaysReload(page.Lines[i].Text) {
			return true
		}
	}
	return false
}

// runGit runs git as a child of the session, so that it is ended with the session, and returns at most gitOutput bytes of
// its output. It runs no hook and no other program, asks nothing and takes no lock.
func runGit(ctx context.Context, manager *process.Manager, dir string, arguments []string) (exit process.Exit, output []byte, err error) {
	return manager.Exec(ctx, process.Spec{
		Name: "git", Command: "git", Dir: dir, Args: append([]string{"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-pager"}, arguments...),
		Env: map[string]string{"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
	}, gitOutput)
}

// gitOf returns runGit for package sources.
func gitOf(manager *process.Manager) sources.Git {
	return func(ctx context.Context, dir string, arguments ...string) (string, error) {
		exit, out, err := runGit(ctx, manager, dir, append([]string{"--literal-pathspecs"}, arguments...))
		if err == nil && !exit.Clean() {
			err = errors.New("git failed")
		}
		return string(out), err
	}
}

// recordCommits sets the commit of each run that starts, until the manager is closed. Starts that come faster than git
// answers have none.
func recordCommits(manager *process.Manager, feed *process.Feed) {
	git := gitOf(manager)
	for {
		change, err := feed.Next(context.Background())
		if err != nil {
			return
		}
		st := &change.Status
		if change.From != process.Starting || change.To != process.Running {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), commitTime)
		if commit := sources.Commit(ctx, git, st.Spec.Dir); commit != "" {
			manager.SetCommit(st.Spec.Name, st.RunID, commit)
		}
		cancel()
	}
}
