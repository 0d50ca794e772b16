package server

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
)

// isForeign says whether another live server owns a run that has not ended.
func isForeign(run *logstore.Run) bool { return !run.Own && run.Live && run.Ended.IsZero() }

// meansOther says whether the name of an entry of this session means run now, the
// latest of that name: nothing of the entry goes on, and another server runs it.
func meansOther(st *process.Status, run *logstore.Run) bool { return !st.GoesOn() && isForeign(run) }

// ownNow is the status of name if that means a process of this session now; false
// if it never ran here or means the run of another server, which is the latest
// stored one. Where the store cannot be read, what this session knows stands.
func (s *Server) ownNow(ctx context.Context, name string) (process.Status, bool) {
	st, err := s.o.Manager.Status(name)
	if err != nil || st.GoesOn() { // what goes on here is ours: the store need not be asked
		return st, err == nil
	}
	run, ok, err := s.latestRun(ctx, name)
	return st, err != nil || !ok || !meansOther(&st, &run)
}

// checkSameElsewhere refuses a definition that is not the stored one of what
// another server runs: it would be passed over.
func (s *Server) checkSameElsewhere(ctx context.Context, run *logstore.Run, given specArgs) error {
	stored, ok, err := s.storedDefinition(ctx, run.Name)
	if err != nil || !ok {
		return nil //nolint:nilerr // there is nothing to compare with
	}
	differs, err := given.differsInStore(ctx, run.Name, s.o.Manager.Project(), stored)
	if err != nil || len(differs) == 0 {
		return err
	}
	return fmt.Errorf("%s runs already in another pmcp server (%s), which alone can change it; what differs from its stored definition: %s\nhint: start_process with its name alone takes it as it runs",
		run.Name, decodeRunInfo(run.Info).Owner, strings.Join(differs, ", "))
}

// differsInStore are the arguments that only the owner of a process could make
// true, as far as what it stored can tell: those for which the process would have
// to be started anew, and of the others those that a gives. No file is read, and
// what is secret, masked or left open by either differs not.
func (a specArgs) differsInStore(ctx context.Context, name, project string, stored specArgs) ([]string, error) {
	if len(a.Masked) > 0 || len(stored.Masked) > 0 {
		return nil, nil
	}
	secret := slices.Concat(a.SecretEnv, stored.SecretEnv)
	sameFiles := slices.Equal(a.EnvFiles, stored.EnvFiles)
	specOf := func(def, other specArgs) (c changeable, err error) {
		def.SecretEnv, def.EnvFiles, def.Cwd = nil, nil, def.dir(project)
		if other.Stdin == nil {
			def.Stdin = nil
		}
		if other.Ready == nil {
			def.Ready = nil
		}
		if c.spec, err = def.spec(ctx, name, project, false); err != nil {
			return c, err
		}
		maps.DeleteFunc(c.spec.Env, func(key, _ string) bool { return slices.Contains(secret, key) })
		c.health, err = def.healthSpec(def.Cwd)
		return c, err
	}
	given, err := specOf(a, stored)
	if err != nil {
		return nil, err
	}
	was, err := specOf(stored, a)
	if err != nil {
		return nil, nil //nolint:nilerr // an older pmcp may have stored it
	}
	differs := was.spec.Differs(given.spec)
	if !sameFiles && !slices.Contains(differs, "env") {
		differs = append(differs, "env_files")
	}
	changes := was.differs(given)
	if !reflect.DeepEqual(a.Limits, stored.Limits) { // a spec's are laid over those of every process, which the owner has
		changes = append(changes, "limits")
	}
	return append(differs, slices.DeleteFunc(changes, func(argument string) bool { return !a.gives(argument) })...), nil
}

// RunsElsewhere gives those of names that run in another live server, for
// groups. What cannot be read is not among them.
func (t *RunTable) RunsElsewhere(ctx context.Context, names []string) map[string]groups.ForeignRun {
	latest, err := t.store.Runs(ctx, logstore.RunFilter{Project: t.project, Names: names, Limit: 1})
	if err != nil {
		return nil // the groups themselves could be read: what they say stands
	}
	found := make(map[string]groups.ForeignRun)
	for i := range latest {
		if run := &latest[i]; isForeign(run) {
			found[run.Name] = groups.ForeignRun{Status: statusOfRun(run), Owner: decodeRunInfo(run.Info).Owner.String()}
		}
	}
	return found
}

// AwaitElsewhere returns a run of another server as soon as until holds for it
// or it has ended, for groups.
func (t *RunTable) AwaitElsewhere(ctx context.Context, id int64, until func(process.Status) bool) (process.Status, error) {
	run, err := t.store.WaitRun(ctx, id, func(run *logstore.Run) bool { return until(statusOfRun(run)) })
	return statusOfRun(&run), err
}

// statusOfRun is what is stored of a run of another server, as far as groups and
// those who wait for it look at it.
func statusOfRun(run *logstore.Run) process.Status {
	info := decodeRunInfo(run.Info)
	st := process.Status{
		Spec: process.Spec{Name: run.Name}, Run: run.Number, RunID: run.ID, PID: info.PID, Ready: info.Ready,
		StartedAt: run.Started, EndedAt: run.Ended,
	}
	st.State, _ = process.ParseState(stateOfRow(run, &info))
	if info.Ready != nil {
		st.Spec.Ready = new(process.Ready)
	}
	if !run.Ended.IsZero() {
		st.Exit = &process.Exit{Code: -1, Signal: info.Signal, By: process.EndedBy(info.EndedBy)}
		if info.ExitCode != nil {
			st.Exit.Code = *info.ExitCode
		}
	}
	return st
}
