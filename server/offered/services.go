package offered

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// services reads the names of the services of compose files. They are started by the program
// that the files are made for.
func (r *reader) services() {
	for _, kind := range []struct {
		name, command string
		files         []string
	}{
		{"process-compose", "process-compose up %s", []string{"process-compose.yaml", "process-compose.yml"}},
		{kindCompose, "docker compose up %s", []string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"}},
	} {
		for _, file := range kind.files {
			content, ok := r.read(file)
			if !ok {
				continue
			}
			f := struct{ Services, Processes map[string]yaml.Node }{Services: map[string]yaml.Node{}}
			if !r.decodeYAML(file, content, &f) {
				break
			}
			maps.Copy(f.Services, f.Processes)
			for _, name := range slices.Sorted(maps.Keys(f.Services)) {
				r.add(kind.name, name, Program{Source: file, service: true, Not: fmt.Sprintf(`it is a service; give command: "`+kind.command+`"`, name)})
			}
			break
		}
	}
}
