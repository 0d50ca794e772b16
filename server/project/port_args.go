package project

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pmcp/process"
	"pmcp/process/ports"
	"pmcp/server/args"
)

// maxPorts bounds the ports of one process.
const maxPorts = 32

// PortArgs are the ports that a process asks for.
type PortArgs struct {
	// Ports holds the preferred port of each environment variable, or 0.
	Ports map[string]int `json:"ports,omitempty" jsonschema:"PORT: 3000 or 0 gets a free one, also as {PORT} in args"`
	// assigned holds the ports of the run that is to be started. It is set in a definition
	// whose templates are replaced, and only there.
	assigned map[string]process.AssignedPort
}

// checkPorts returns an error for ports that could never be assigned, and for a template
// where none is replaced.
func (a Definition) checkPorts(project string) error {
	if len(a.Ports) > maxPorts {
		return fmt.Errorf("argument ports: want at most %d, got %d", maxPorts, len(a.Ports))
	}
	line := a.source(project).Assigned()
	fixed := make(map[int]string)
	for _, variable := range slices.Sorted(maps.Keys(a.Ports)) {
		port, other := a.Ports[variable], fixed[a.Ports[variable]]
		switch {
		case !ports.IsVariable(variable):
			return fmt.Errorf("argument ports: %.100q is not the name of an environment variable; want letters, digits and _, as PORT", variable)
		case port < 0 || port > ports.Max:
			return fmt.Errorf("argument ports: %s: want 1 to %d, or 0 for any, got %d", variable, ports.Max, port)
		case port != 0 && other != "":
			return fmt.Errorf("argument ports: %s and %s both ask for %d", other, variable, port)
		case a.Env[variable] != nil, slices.Contains(a.SecretEnv, variable), len(a.Args) == 0 && line[variable] != nil:
			return fmt.Errorf("argument ports: %s is also set in env or in the command; give it in one place (env: {%q: null} removes it there)", variable, variable)
		}
		fixed[port] = variable
		delete(fixed, 0)
	}
	return a.checkTemplates()
}

// checkTemplates returns an error if an argument in which templates are not replaced names
// one of the ports, or one of another process.
func (a Definition) checkTemplates() error {
	places := map[string]string{"cwd": a.Cwd, "env_files": strings.Join(a.EnvFiles, " "), "group": a.Group}
	if a.Ready != nil {
		places["ready.log"] = a.Ready.Log
	}
	if a.Stop != nil {
		places["stop.signal"] = a.Stop.Signal
	}
	for _, place := range slices.Sorted(maps.Keys(places)) {
		found := ""
		ports.Expand(places[place], func(process, variable string) (string, bool) {
			switch _, is := a.Ports[variable]; {
			case process == "" && is:
				found = variable
			case process != "" && isPortName(variable):
				found = process + "." + variable
			}
			return "", false
		})
		if found != "" {
			return fmt.Errorf("argument %s: {%s} is not replaced here, only in command, args, env, ready.port, ready.http and health", place, found)
		}
	}
	return nil
}

func isPortName(variable string) bool {
	return variable == "PORT" || strings.HasSuffix(variable, "_PORT")
}

// anyPort stands for a port that is not known.
const anyPort = 10000

// withAnyPorts returns a with its preferred ports and with anyPort for every other, for
// comparisons.
func (a Definition) withAnyPorts() Definition {
	assigned := make(map[string]process.AssignedPort, len(a.Ports))
	for variable, preferred := range a.Ports {
		assigned[variable] = process.AssignedPort{Preferred: preferred, Port: cmp.Or(preferred, anyPort)}
	}
	return a.expanded(assigned, func(string, string) (string, bool) { return strconv.Itoa(anyPort), true })
}

// expanded returns a with the given ports, and with the templates replaced for which value
// returns a text.
func (a Definition) expanded(assigned map[string]process.AssignedPort, value func(process, variable string) (string, bool)) Definition {
	a = a.clone()
	if a.assigned = assigned; assigned == nil {
		a.assigned = map[string]process.AssignedPort{}
	}
	own := func(process, variable string) (string, bool) {
		port, ok := assigned[variable]
		return strconv.Itoa(port.Port), ok && process == ""
	}
	text := func(s string) string {
		return ports.Expand(s, func(process, variable string) (string, bool) {
			if process == "" {
				return own(process, variable)
			}
			return value(process, variable)
		})
	}
	texts := func(list []string) []string {
		list = slices.Clone(list)
		for i := range list {
			list[i] = text(list[i])
		}
		return list
	}
	a.Command, a.Args = text(a.Command), texts(a.Args)
	for key, value := range a.Env {
		if value != nil {
			a.Env[key] = new(text(*value))
		}
	}
	if a.Ready != nil {
		ready := *a.Ready
		ready.HTTP = text(ready.HTTP)
		ready.Port = args.IntOrText(ports.Expand(string(ready.Port), own))
		for _, port := range assigned { // the port that was preferred is the one that was meant
			if meant, ok := a.Ready.Port.Int(); ok && meant == port.Preferred && meant != 0 {
				ready.Port = args.IntOrText(strconv.Itoa(port.Port))
			}
		}
		a.Ready = &ready
	}
	if a.Health != nil {
		h := *a.Health
		h.Command, h.Args, h.TCP, h.HTTP = text(h.Command), texts(h.Args), text(h.TCP), text(h.HTTP)
		a.Health = &h
	}
	return a
}
