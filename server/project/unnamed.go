package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"pmcp/process"
)

// A process that a call starts without a name is unnamed: the project makes a name from
// its command, under which its log can be read, and stores no definition. It keeps the
// definition in memory as long as the Manager has the process, so that it can be started
// again by that name.

// Bounds of the names of unnamed processes.
const (
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

// Words of a command line that say more than others: launchers run the program that
// follows, interpreters run a script, and the word after one of inner says what is done.
var (
	launchers    = []string{"npx", "bunx", "uvx"}
	interpreters = regexp.MustCompile(`^(?:node|bun|deno|tsx|ts-node|python[0-9.]*|ruby|perl|php|bash|sh|zsh)$`)
	scriptFile   = regexp.MustCompile(`^[A-Za-z0-9_./-]+\.(?:[cm]?[jt]sx?|py|rb|pl|php|sh)$`)
	inner        = []string{"run", "exec", "dlx", "compose"}
	tasks        = []string{"run", "exec", "compose", "test", "build", "dev", "start", "serve", "check", "lint", "install", "up"}
)

// nameWords returns the name that a command gets: the script or the program that it runs,
// without directories, and the first word after it. The words end at the first option,
// because what follows may be a secret; only scripts and tasks are looked for behind it.
func (p *Project) nameWords(def Definition) string {
	words := append([]string{def.Command}, def.Args...)
	if len(def.Args) == 0 {
		words = p.source(&def).Words()
	}
	for i, word := range p.o.Mask.Texts(words) {
		if word != words[i] {
			words = words[:i] // a secret
			break
		}
	}
	words = program(words)
	name, options := "", false
	for i, word := range words {
		base := strings.Trim(notInWord.ReplaceAllString(path.Base(word), "-"), "-._")
		if i == 0 {
			name = base[:min(len(base), maxNameBytes)]
			continue
		}
		if !slices.Contains(tasks, word) && (options || !plainWord.MatchString(word) || !startsWithLetter(word)) {
			options = true // or a number, or quoted text
			continue
		}
		if len(name)+1+len(base) <= maxNameBytes {
			name += "-" + base
		}
		if !slices.Contains(inner, word) {
			break
		}
	}
	return cmp.Or(strings.Trim(name, "-._"), unnamedPrefix)
}

// program returns words without what only launches the program that they name: npx -y,
// python -m, and an interpreter with its options.
func program(words []string) []string {
	if len(words) < 2 {
		return words
	}
	name := path.Base(words[0])
	behind := 1 // the options
	for behind < len(words) && strings.HasPrefix(words[behind], "-") && words[behind] != "-m" {
		behind++
	}
	switch {
	case slices.Contains(launchers, name) && behind < len(words):
		return words[behind:]
	case !interpreters.MatchString(name):
	case strings.HasPrefix(name, "python") && behind+1 < len(words) && words[behind] == "-m":
		return words[behind+1:]
	default:
		if script := slices.IndexFunc(words[1:], scriptFile.MatchString); script >= 0 {
			return words[1+script:]
		}
	}
	return words
}

func startsWithLetter(word string) bool {
	first := path.Base(word)[0] | 0x20
	return !strings.HasPrefix(word, "-") && 'a' <= first && first <= 'z'
}

func commandLine(r *Run) string {
	words := []string{shellQuote(r.Executable)}
	for _, arg := range r.Spec.Args {
		words = append(words, shellQuote(arg))
	}
	return strings.Join(words, " ")
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
