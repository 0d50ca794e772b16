package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// result is what a check found. Error is empty if all is well.
type result struct {
	Name  string `json:"name"`
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// check looks at what users trip over.
func (d *diagnosis) check(ctx context.Context, o DoctorOptions, list []Entry) {
	checks := []Check{
		{"registry", func(context.Context) (string, error) { return o.Dir, writable(o.Dir) }},
		{"descriptors", func(context.Context) (string, error) { return descriptors() }},
		{"clock", func(context.Context) (string, error) { return clock(time.Now(), list) }},
	}
	if o.Database != "" {
		checks = append(checks, Check{"database", func(context.Context) (string, error) { return database(o.Database) }})
	}
	if len(o.Allowed) > 0 {
		checks = append(checks, Check{"allowlist", func(context.Context) (string, error) { return allowlist(o.Allowed) }})
	}
	d.Checks = []result{}
	for _, c := range append(checks, o.Checks...) {
		d.Checks = append(d.Checks, run(ctx, c))
	}
}

func run(ctx context.Context, c Check) result {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	text, err := c.Run(ctx)
	r := result{Name: c.Name, Text: text}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// writable says whether a directory, or where it does not exist yet the nearest
// one above it, can be written to. It does not try: Doctor changes nothing.
func writable(dir string) error {
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir):
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("cannot write to %s: %w", dir, err)
		}
		return nil
	}
}

// database tells the size of the log database with its write-ahead log.
func database(path string) (string, error) {
	if err := writable(filepath.Dir(path)); err != nil {
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

// allowlist checks that each entry names a file or directory.
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

// enoughDescriptors is what 50 processes with three pipes each and a database
// need, twice over.
const enoughDescriptors = 512

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

// clock finds a clock that was set back, which breaks "the last ten minutes"
// and retention, or was never set.
func clock(now time.Time, list []Entry) (string, error) {
	text := now.Format(time.RFC3339)
	if now.Year() < 2025 {
		return text, errors.New("the clock was never set")
	}
	for _, e := range list {
		if ahead := e.Record.StartedAt.Sub(now); e.State == Live && ahead > clockSlack {
			return text, fmt.Errorf("the server with pid %d started %v in the future: the clock was set back", e.Record.Server.PID, ahead.Round(time.Second))
		}
	}
	return text, nil
}
