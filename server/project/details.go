package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pmcp/health"
	"pmcp/logstore/mask"
	"pmcp/process"
)

// maskedValue replaces the value of a variable that looks secret.
const maskedValue = "***"

// historyLength is the number of runs in Details.
const historyLength = 10

// Details is what is known about one process.
type Details struct {
	Run     Run
	History []Run // the latest runs, latest first
	// Definition and Health are of the present, so they are nil if Run is not the
	// latest run. The variables of the Definition are in Env instead.
	Definition *Definition
	Health     *health.Status
	Env        map[string]string // what looks secret is masked
	Tree       []process.Member  // with the secrets in the command lines masked
}

// Details returns what is known about a process and its run with that number; 0
// stands for the current run, and a negative number counts from the latest.
func (p *Project) Details(ctx context.Context, name string, number int) (d Details, err error) {
	if d.Run, err = p.Find(ctx, name); err != nil {
		return d, err
	}
	if d.History, err = p.History(ctx, name, historyLength); err != nil {
		return d, err
	}
	current := d.Run.RunID
	if number != 0 {
		ids, err := p.runIDs(ctx, []string{name}, number)
		if err != nil {
			return d, err
		}
		if ids[0] != current {
			run, err := p.o.Store.Run(ctx, ids[0])
			if err != nil {
				return d, fmt.Errorf("cannot read the run of %s: %w", name, err)
			}
			d.Run = stored(&run)
		}
	}
	p.o.Store.addLeft(ctx, &d.Run)
	d.Run = measured(d.Run)
	if !d.Run.Stored {
		d.Env = p.maskEnv(d.Run.Spec.Env)
		d.Tree, _ = p.Tree(name) // a process that was removed since has no tree
	} else if d.Run.isElsewhere() {
		members, _ := process.TreeElsewhere(d.Run.elsewhere()) // none where /proc is that of another namespace
		d.Tree = p.masked(members)
	}
	if id := d.Run.RunID; id == current || len(d.History) > 0 && id == d.History[0].RunID {
		err = p.addDefinition(ctx, &d, name)
	}
	return d, err
}

// Tree returns the processes in the tree of a process of this session, with the
// secrets in their command lines masked, which may be cut off within a secret. It
// returns nil for any other process.
func (p *Project) Tree(name string) ([]process.Member, error) {
	members, err := p.o.Manager.Tree(name)
	if errors.Is(err, process.ErrUnknown) {
		return nil, nil
	}
	return p.masked(members), err
}

// Strays returns processes that descend from this server but belong to no process of
// the session.
func (p *Project) Strays() []process.Member { return p.masked(p.o.Manager.Strays()) }

func (p *Project) masked(members []process.Member) []process.Member {
	for i := range members {
		members[i].Command = p.o.Mask.Clipped(members[i].Command)
	}
	return members
}

// addDefinition adds the definition and the health check of a process. For a
// definition that is not running here it also adds the variables, and for one that
// never ran the command.
func (p *Project) addDefinition(ctx context.Context, d *Details, name string) error {
	definition := p.Definition
	if d.Run.Owner != nil {
		definition = p.storedDefinition // the owner's definition, not the one that this session last ran
	}
	def, ok, err := definition(ctx, name)
	if err != nil {
		return err
	}
	if ok {
		p.describe(d, name, def)
		def.Env, def.SecretEnv, def.Masked = nil, nil, nil
		d.Definition = &def
	}
	if d.Run.Owner == nil { // another window's run is not checked here
		d.Health = p.Health(name)
	}
	return nil
}

// describe adds to d what a run of def would show.
func (p *Project) describe(d *Details, name string, def Definition) {
	if d.Env == nil {
		env := make(map[string]string, len(def.Env))
		for key, value := range def.Env {
			if value != nil {
				env[key] = *value
			}
		}
		d.Env = p.maskEnv(env)
		for _, key := range def.SecretEnv {
			d.Env[key] = maskedValue
		}
	}
	if d.Run.Executable != "" {
		return
	}
	p = p.of(name)
	def.EnvFiles, def.SecretEnv = nil, nil // a description reads no files and needs no secrets
	spec, err := p.Spec(name, def, false)
	r := &d.Run
	r.Executable, r.Spec.Args, r.Spec.Dir = def.Command, def.Args, def.dir(p.name)
	if err == nil {
		r.Executable, r.Spec.Args = spec.Command, spec.Args
		if found, err := p.o.Manager.Resolve(spec); err == nil { // otherwise a start reports the error
			r.Executable = found.Executable()
		}
	}
	r.Spec.Args = p.o.Mask.Texts(r.Spec.Args)
}

// maskEnv returns env with the values of variables that look secret replaced, and
// with the secrets in all other values masked.
func (p *Project) maskEnv(env map[string]string) map[string]string {
	shown := make(map[string]string, len(env))
	for key, value := range env {
		if mask.SecretName(key) {
			value = maskedValue
		}
		shown[key] = p.o.Mask.Text(value)
	}
	return shown
}

// Health returns the health of a process that this session checks, with the last
// result, or nil for any other process.
func (p *Project) Health(name string) *health.Status {
	st, ok := p.o.Health.Status(name)
	if !ok {
		return nil
	}
	st.Results = st.Results[max(0, len(st.Results)-1):]
	return &st
}

// CheckHealth checks the health of a process now. Its error wraps health.ErrNoCheck
// or health.ErrNotRunning if there was nothing to check.
func (p *Project) CheckHealth(ctx context.Context, name string) (health.Status, error) {
	st, err := p.o.Health.Check(ctx, name)
	noCheck := errors.Is(err, health.ErrNoCheck)
	if own, ownErr := p.o.Manager.Status(name); !noCheck && !errors.Is(err, health.ErrNotRunning) || noCheck && ownErr == nil && own.GoesOn() {
		return st, err
	}
	if err := p.requireHere(ctx, name); err != nil {
		return st, err
	}
	if def, ok, defErr := p.Definition(ctx, name); noCheck && defErr == nil && ok && def.Health != nil {
		err = health.ErrNotRunning
	}
	return st, err
}

// Usage returns the usage of the run that name stands for, over the given window (0:
// the default) and with a series of at most the given number of points. Of a stored run
// it has no current usage.
func (p *Project) Usage(ctx context.Context, name string, window time.Duration, points int) (run Run, stats process.Stats, err error) {
	run, err = p.Find(ctx, name)
	switch {
	case err != nil:
		return run, stats, err
	case !run.Stored:
		stats, err = p.o.Manager.Stats(name, window, points)
		return run, stats, err
	case run.RunID == 0:
		return run, stats, nil
	}
	samples, err := p.o.Store.Samples(ctx, run.RunID, time.Time{})
	var usage []process.Usage
	for _, x := range slices.Backward(samples) {
		if window > 0 && samples[len(samples)-1].At.Sub(x.At) > window {
			break
		}
		usage = append(usage, process.Usage{At: x.At, CPUPercent: x.CPUPercent, MemoryBytes: x.MemoryBytes, Processes: x.Processes})
	}
	slices.Reverse(usage)
	return run, process.Summarize(usage, points), err
}
