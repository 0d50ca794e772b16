package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"pmcp/logstore"
	"pmcp/logstore/db"
	"pmcp/logstore/mask"
	"pmcp/registry"
	"pmcp/registry/doctor"
	"pmcp/server/args"
	"pmcp/server/config"
	"pmcp/server/daemon"
	"pmcp/server/project"
)

// Doctor writes the report of pmcp --doctor to stdout and returns the exit code: 2 if the
// variables are wrong, else that of doctor.Run. It completes o from the variables.
func Doctor(o doctor.Options, stdout, stderr io.Writer) int {
	c, err := config.Read()
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitFailed
	}
	c.Warn(slog.New(slog.NewTextHandler(stderr, nil)))
	o.Dir, o.MaxServers, o.Database, o.Allowed = c.RegistryDir, c.MaxServers, c.DatabasePath, c.AllowedCommands
	o.Mask = func(argv []string) []string {
		m := mask.New()
		m.LearnArgs(argv...)
		return m.Texts(argv)
	}
	o.Checks = []doctor.Check{
		{Name: "integrity", Run: func(ctx context.Context) (string, error) { return db.CheckFile(ctx, c.DatabasePath) }},
		{Name: "file system", Run: func(context.Context) (string, error) { return "of the database", db.CheckFileSystem(c.DatabasePath) }},
		{Name: "daemon", Run: func(ctx context.Context) (string, error) { return checkDaemon(ctx, &c) }},
	}
	progress := StartProgress(stderr, func() string {
		if o.Cleanup {
			return "stopping what dead servers left"
		}
		return "examining servers and database"
	})
	defer progress.End()
	return doctor.Run(progress.Over(stdout), o)
}

// checkDaemon returns what the daemon is and what it keeps.
func checkDaemon(ctx context.Context, c *config.Config) (string, error) {
	text, err := daemon.Check(ctx, daemon.Options{Dir: c.RegistryDir, Database: c.DatabasePath, SocketPath: c.Daemon.SocketPath, TCP: c.Daemon.TCP()})
	if registry.DaemonRecord(c.RegistryDir, c.DatabasePath).ID == "" {
		return text, err // without a server, the doctor does not open the database for writing
	}
	held, e := kept(ctx, c)
	return text + ", keeps " + cmp.Or(held, "nothing"), errors.Join(err, e)
}

// maxKept bounds how many processes kept names.
const maxKept = 20

// kept returns a line about what the daemon keeps, for how long and for which project, the
// process with the least time left first. It is "" for nothing and for no database.
func kept(ctx context.Context, c *config.Config) (line string, err error) {
	store, err := logstore.Open(ctx, logstore.Options{Path: c.DatabasePath, ReadOnly: true, Alive: c.Alive})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, logstore.ErrOlderSchema):
		return "what pmcp of its version shows", nil
	case err != nil:
		return "", err
	}
	defer func() { _ = store.Close() }() // nothing was written
	runs, err := project.Kept(ctx, project.NewStore(store, c.ProjectDir))
	var names []string
	for i := range runs {
		if i == maxKept {
			names = append(names, fmt.Sprintf("%d more", len(runs)-i))
			break
		}
		names = append(names, fmt.Sprintf("%s for %s in %s", runs[i].Spec.Name, args.FormatAge(runs[i].KeptFor()), runs[i].Project))
	}
	return strings.Join(names, ", "), err
}
