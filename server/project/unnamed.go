package project

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"pmcp/process"
	"pmcp/process/command"
)

// A process that a call starts without a name is unnamed: the project makes a name from
// its command, under which its log can be read, and stores no definition.

// Bounds of the names of unnamed processes.
const (
	maxNameWords = 3
	maxNameBytes = 32
	maxSameNames = 1000 // unnamed processes at once with the same words
)

// ErrNameTaken is wrapped if another process took the name of an unnamed one before it
// could be started.
var ErrNameTaken = errors.New("the name is taken")

// UnnamedName returns the name for an unnamed process with the definition def: words of its
// command, and a number if another process has that name. A process that runs the same
// in the same directory keeps its name, and so does one that has ended.
func (p *Project) UnnamedName(ctx context.Context, def Definition) (string, error) {
	spec, err := p.absoluteSpec(unnamedPrefix, def)
	if err != nil {
		return "", err
	}
	defined, err := p.o.Store.Definitions(ctx, p.name)
	if err != nil {
		return "", fmt.Errorf("cannot list the stored definitions: %w", err)
	}
	base := p.nameWords(def)
	for n := 1; n <= maxSameNames; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		name = p.o.Store.address(p.name, name)
		if _, ok := defined[name]; ok {
			continue
		}
		if _, ok := p.definitions.Load(name); ok {
			continue
		}
		st, err := p.o.Manager.Status(name)
		if err == nil && (!st.Spec.Unnamed || st.GoesOn() && !runsSame(st.Spec, spec)) {
			continue
		}
		if run, _, err := p.latest(ctx, name); err == nil && run.Owner == nil {
			return name, nil
		} else if err != nil {
			return "", fmt.Errorf("cannot read the runs of %s: %w", name, err)
		}
	}
	return "", fmt.Errorf("%w: %s; give it a name", ErrNameTaken, base)
}

// unnamedPrefix begins the name of an unnamed process whose command has no word for it.
const unnamedPrefix = "run"

// notInWord matches what a word of a name must not contain.
var notInWord = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameWords returns the first words of a command as a name, without directories. It ends
// at the first option, because what follows may be a secret, but not at npx -y and
// python -m: what they run is named next.
func (p *Project) nameWords(def Definition) string {
	words := append([]string{def.Command}, def.Args...)
	if len(def.Args) == 0 {
		words = command.Words(def.Command, def.dir(p.name))
	}
	if len(words) > 1 && (words[1] == "-y" || words[1] == "--yes" || words[1] == "-m" && strings.HasPrefix(path.Base(words[0]), "python")) {
		words = slices.Delete(words, 1, 2)
	}
	name := ""
	for i, word := range p.o.Mask.Texts(words) {
		if strings.HasPrefix(word, "-") || i == maxNameWords || word != words[i] || i > 0 && !plainWord.MatchString(word) {
			break
		}
		word = strings.Trim(notInWord.ReplaceAllString(path.Base(word), "-"), "-._")
		if name == "" {
			word = word[:min(len(word), maxNameBytes)]
		}
		if word != "" && len(name)+len(word) <= maxNameBytes {
			name += "-" + word
		}
	}
	if name == "" {
		return unnamedPrefix
	}
	return name[1:]
}

// absoluteSpec is Spec for a call that waits for the end, with an absolute directory.
func (p *Project) absoluteSpec(name string, def Definition) (process.Spec, error) {
	spec, err := p.Spec(name, def, true)
	spec.Dir = Definition{Cwd: spec.Dir}.dir(p.name)
	return spec, err
}

// runsSame reports whether two specs run the same program in the same directory and
// environment.
func runsSame(a, b process.Spec) bool {
	return !slices.ContainsFunc(a.Differs(b), func(field string) bool { return field != "ready" && field != "stdin" })
}

// Ended returns the outcome of a start that was already carried out: the process has
// ended in the given run, and that run is what a asks for. Otherwise ok is false.
func (p *Project) Ended(ctx context.Context, a StartRequest, run int64) (started Started, ok bool) {
	p = p.of(a.Name)
	st, err := p.o.Manager.Status(a.Name)
	if err != nil || st.RunID != run || st.GoesOn() {
		return Started{}, false
	}
	def, err := p.complete(ctx, a)
	if err != nil {
		return Started{}, false
	}
	spec, err := p.absoluteSpec(a.Name, def)
	if err != nil || !runsSame(st.Spec, spec) {
		return Started{}, false
	}
	return Started{Run: p.here(&st), Wait: UntilExit}, true
}
