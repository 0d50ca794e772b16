package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/registry"
)

// A result is what a check found. Error is empty if nothing is wrong.
type result struct {
	Name  string `json:"name"`
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// check runs the checks: first those of what users often get wrong, then o.Checks.
func (r *report) check(ctx context.Context, o Options, list []registry.Entry) {
	checks := []Check{
		{"registry", func(context.Context) (string, error) { return o.Dir, registry.CheckDir(o.Dir) }},
		{"descriptors", func(context.Context) (string, error) { return descriptors() }},
		{"clock", func(context.Context) (string, error) { return clock(time.Now(), list) }},
	}
	if o.Database != "" {
		checks = append(checks, Check{"database", func(context.Context) (string, error) { return database(o.Database) }})
	}
	if len(o.Allowed) > 0 {
		checks = append(checks, Check{"allowlist", func(context.Context) (string, error) { return allowlist(o.Allowed) }})
	}
	r.Checks = []result{}
	for _, c := range append(checks, o.Checks...) {
		limited, cancel := context.WithTimeout(ctx, checkLimit)
		text, err := c.Run(limited)
		cancel()
		r.Checks = append(r.Checks, result{Name: c.Name, Text: text, Error: errorText(err)})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// database returns the path and the size of the log database, with its write-ahead
// log, and an error if it cannot be used.
func database(path string) (string, error) {
	if err := registry.CheckWritable(filepath.Dir(path)); err != nil {
		return path, err
	}
	var size int64
	for i, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		switch {
		case err == nil && !info.Mode().IsRegular():
			return path, fmt.Errorf("%s is not a plain file", name)
		case err == nil:
			size += info.Size()
		case !errors.Is(err, os.ErrNotExist):
			return path, err
		case i == 0:
			return path + ", not created yet", nil
		}
	}
	if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
		return path, fmt.Errorf("cannot write to %s: %w", path, err)
	}
	return fmt.Sprintf("%s, %.1f MB", path, float64(size)/1e6), nil
}

// allowlist returns an error that names the entries which do not exist.
func allowlist(entries []string) (string, error) {
	var missing []string
	for _, entry := range entries {
		if _, err := os.Stat(entry); err != nil {
			missing = append(missing, entry)
		}
	}
	text := fmt.Sprintf("%d entries", len(entries))
	if len(missing) > 0 {
		return text, fmt.Errorf("no such file or directory: %s", strings.Join(missing, ", "))
	}
	return text, nil
}

// enoughDescriptors is twice what a database and 50 processes with three pipes each
// need.
const enoughDescriptors = 512

// descriptors returns the limit of open files, and an error if it is too low.
func descriptors() (string, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return "", err
	}
	if limit.Cur < enoughDescriptors {
		return fmt.Sprint(limit.Cur), fmt.Errorf("only %d open files are allowed, want %d: raise it with ulimit -n", limit.Cur, enoughDescriptors)
	}
	return fmt.Sprint(limit.Cur), nil
}

// clockSlack is how far a server's start may lie in the future.
const clockSlack = time.Minute

// clock returns the time, and an error if the clock was never set or was set back,
// which breaks "the last ten minutes" and retention.
func clock(now time.Time, list []registry.Entry) (string, error) {
	text := now.Format(time.RFC3339)
	if now.Year() < 2025 {
		return text, errors.New("the clock was never set")
	}
	for _, e := range list {
		if ahead := e.Record.StartedAt.Sub(now); e.State == registry.Live && ahead > clockSlack {
			return text, fmt.Errorf("the server with pid %d started %v in the future: the clock was set back", e.Record.Server.PID, ahead.Round(time.Second))
		}
	}
	return text, nil
}
