package offered

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Program is what a file offers under a name.
type Program struct {
	// Name is a valid name of a process. Several files may offer the same one; Qualified, as
	// in npm:dev, is unique.
	Name, Qualified string
	// Plain means that Find returns only this program for Name.
	Plain   bool
	Written string // the name as the file has it
	Source  string // the file, relative to the directory that was read
	// Line is a command line. If it is "", Argv holds a program and its arguments.
	Line string
	Argv []string
	// Script is what a script of package.json runs, for readers.
	Script string
	Cwd    string // relative to the directory that was read, or absolute; "" is that directory
	// A variable that is nil is to be unset.
	Env      map[string]*string
	EnvFiles []string       // absolute
	Ports    map[string]int // the preferred port of each variable
	Port     int            // the port on which it has to listen; 0: any
	// Not is why it cannot be started, or "".
	Not string
	// Ignored is what the file asks for and a start leaves out, or "".
	Ignored string
	service bool
}

// IsService reports whether a compose file defines p: then it is only named.
func (p *Program) IsService() bool { return p.service }

// Command returns the command line of p for readers: that in a script if p is one.
func (p *Program) Command() string { return cmp.Or(p.Script, p.Line, strings.Join(p.Argv, " ")) }

// Runs reports whether p runs the program words in the directory dir, which is relative or
// absolute as Cwd is.
func (p *Program) Runs(words []string, dir string) bool {
	return slices.Equal(p.words(), words) && path.Clean(p.Cwd) == path.Clean(dir)
}

func (p *Program) words() []string {
	if p.Line != "" {
		return strings.Fields(p.Line)
	}
	return p.Argv
}

// settings returns how much the file says about p beside its command.
func (p *Program) settings() int {
	return len(p.Env) + len(p.EnvFiles) + len(p.Ports) + min(p.Port, 1)
}

// An Offer is what the files of a directory offer.
type Offer struct {
	Programs []Program
	Notes    []string // what could not be read, each with its file
}

// kinds are the first parts of qualified names.
const (
	kindClaude  = "claude"
	kindNPM     = "npm"
	kindTask    = "task"
	kindLaunch  = "launch"
	kindCompose = "compose"
)

// Read reads the files of the directory dir. The lock file that tells the package manager may
// also be in a directory above it, up to root.
func Read(dir, root string) Offer {
	r := &reader{dir: filepath.Clean(dir), root: filepath.Clean(root)}
	r.claude()
	r.packages()
	r.procfiles()
	r.tasks()
	r.launch()
	r.services()
	return Offer{r.finish(), r.notes}
}

// add adds a program that a file offers under the name written.
func (r *reader) add(kind, written string, p Program) {
	p.Written, p.Name = written, processName(written)
	p.Qualified = kind + ":" + p.Name
	r.programs = append(r.programs, p)
}

// finish returns the programs without those that another file describes as well, and with
// unique qualified names.
func (r *reader) finish() []Program {
	var kept []Program
	named := make(map[string][]int) // indexes in kept
	for i := range r.programs {
		p := &r.programs[i]
		same := slices.IndexFunc(named[p.Name], func(i int) bool {
			k := &kept[i]
			return k.Not == "" && p.Not == "" && k.Source != p.Source && k.Runs(p.words(), p.Cwd)
		})
		switch {
		case same < 0:
			named[p.Name] = append(named[p.Name], len(kept))
			kept = append(kept, *p)
		case p.settings() > kept[named[p.Name][same]].settings():
			kept[named[p.Name][same]] = *p
		}
	}
	taken := make(map[string]bool)
	unique := func(p *Program) {
		name, qualified := p.Name, p.Qualified
		for n := 2; taken[p.Qualified]; n++ {
			p.Name, p.Qualified = fmt.Sprintf("%s-%d", name, n), fmt.Sprintf("%s-%d", qualified, n)
		}
		taken[p.Qualified] = true
	}
	var changed []*Program
	for i := range kept {
		if p := &kept[i]; p.Name == p.Written { // it keeps its name
			unique(p)
		} else {
			changed = append(changed, p)
		}
	}
	for _, p := range changed {
		unique(p)
	}
	setPlain(kept)
	return kept
}

// setPlain sets Plain of each program that can be started: as Find does, it prefers what a
// file has as the name.
func setPlain(all []Program) {
	written, named := make(map[string]int), make(map[string]int)
	for i := range all {
		if p := &all[i]; p.Not == "" {
			written[p.Written]++
			named[p.Name]++
		}
	}
	for i := range all {
		p := &all[i]
		if n := written[p.Name]; n > 0 {
			p.Plain = n == 1 && p.Written == p.Name
		} else {
			p.Plain = named[p.Name] == 1
		}
	}
}

var (
	notInName = regexp.MustCompile(`[^A-Za-z0-9._:-]+`)
	// aroundColon is what replacing leaves of "npm: dev".
	aroundColon = regexp.MustCompile(`-*:-*`)
)

// maxName is how long the name of a program can be; the first part of a qualified name has
// room beside it in the name of a process.
const maxName = 48

// processName returns the name of the process that a program with the name written gets: what
// such a name cannot have becomes a hyphen.
func processName(written string) string {
	name := aroundColon.ReplaceAllString(notInName.ReplaceAllString(written, "-"), ":")
	name = strings.TrimLeft(name, "._:-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), maxName)], ":-"), "program")
}

// Find returns the programs that name stands for: a qualified name, else the name that the
// file or the process has, else that of a workspace's program without the workspace. Programs
// that can be started come before others, which are returned only if there are none.
func (o Offer) Find(name string) []*Program {
	for _, matches := range []func(*Program) bool{
		func(p *Program) bool { return p.IsQualified(name) },
		func(p *Program) bool { return p.Written == name },
		func(p *Program) bool { return p.Name == name },
		func(p *Program) bool { return p.inWorkspace() && strings.HasSuffix(p.Written, ":"+name) },
	} {
		var found, others []*Program
		for i := range o.Programs {
			switch p := &o.Programs[i]; {
			case !matches(p):
			case p.Not == "":
				found = append(found, p)
			default:
				others = append(others, p)
			}
		}
		if len(found)+len(others) > 0 {
			if len(found) == 0 {
				return others
			}
			return found
		}
	}
	return nil
}

// IsQualified reports whether name is the qualified name of p, as it is or as its file has it.
func (p *Program) IsQualified(name string) bool {
	return p.Qualified == name || kindOf(p)+":"+p.Written == name
}

func kindOf(p *Program) string {
	kind, _, _ := strings.Cut(p.Qualified, ":")
	return kind
}

func (p *Program) inWorkspace() bool {
	return kindOf(p) == kindNPM && p.Source != "package.json"
}
