package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"pmcp/logstore"
	"pmcp/registry"
	"pmcp/server/args"
	"pmcp/server/config"
	"pmcp/server/project"
)

// maxKept bounds how many processes Kept names.
const maxKept = 20

// Kept returns a line about what the daemon keeps, for how long and for which project, the
// process with the least time left first. It is "" for nothing, for a database of an older
// version, and for none.
func Kept(ctx context.Context, c *config.Config) (line string, err error) {
	store, err := logstore.Open(ctx, logstore.Options{Path: c.DatabasePath, ReadOnly: true, Alive: func(dir, session string) bool {
		return registry.Alive(cmp.Or(dir, c.RegistryDir), session)
	}})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, logstore.ErrOlderSchema) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = store.Close() }() // nothing was written
	runs, err := project.Kept(ctx, project.NewStore(store, c.ProjectDir))
	var kept []string
	for i := range runs {
		if i == maxKept {
			kept = append(kept, fmt.Sprintf("%d more", len(runs)-i))
			break
		}
		kept = append(kept, fmt.Sprintf("%s for %s in %s", runs[i].Spec.Name, args.FormatAge(runs[i].KeptFor()), runs[i].Project))
	}
	return strings.Join(kept, ", "), err
}
