package offered

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	procfileLine = regexp.MustCompile(`^([A-Za-z0-9_.-]+)\s*:\s*(\S.*)$`)
	// usesPort matches a command line that needs PORT from whoever starts it.
	usesPort = regexp.MustCompile(`\$PORT\b|\$\{PORT\}`)
)

// basePort is the first port that foreman and its like give; each line has portStep more.
const (
	basePort = 5000
	portStep = 100
)

// procfileNames are the files that foreman's users have.
var procfileNames = []string{"Procfile", "Procfile.dev"}

// IsProcfile reports whether file is the name of a file that Read reads as a Procfile. Its
// lines are one group.
func IsProcfile(file string) bool { return slices.Contains(procfileNames, file) }

// procfiles reads the files of foreman. As there, the variables of .env hold, and a line that
// uses PORT gets one.
func (r *reader) procfiles() {
	for _, file := range procfileNames {
		content, ok := r.read(file)
		if !ok {
			continue
		}
		var bad []string
		lines := make(map[string]bool)
		for i, line := range strings.Split(string(content), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			m := procfileLine.FindStringSubmatch(line)
			if m == nil || lines[m[1]] {
				bad = append(bad, fmt.Sprint(i+1))
				continue
			}
			p := Program{Source: file, Line: m[2]}
			if usesPort.MatchString(p.Line) && !strings.Contains(p.Line, "PORT=") {
				p.Ports = map[string]int{"PORT": basePort + portStep*len(lines)}
			}
			if exists(r.dir, ".env") {
				p.EnvFiles = []string{filepath.Join(r.dir, ".env")}
			}
			lines[m[1]] = true
			r.add(file, m[1], p)
		}
		if len(bad) > 0 {
			r.note(file, "left out: line %.100s (want name: command, each name once)", strings.Join(bad, ", "))
		}
	}
}
