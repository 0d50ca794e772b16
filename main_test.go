package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/guard"
	"pmcp/registry"
	"pmcp/registry/doctor"
	"pmcp/server/cli"
	"pmcp/server/config"
)

// TestDoctorNamesUnknownVariables checks that the doctor names a misspelled variable, because of
// which it examines another directory than the user means.
func TestDoctorNamesUnknownVariables(t *testing.T) {
	t.Setenv("PM_REGISTRY_DIR", t.TempDir())
	t.Setenv("PM_DATABASE_PATH", filepath.Join(t.TempDir(), "pmcp.db"))
	t.Setenv("PM_REGISTRY_DIRS", "/x")
	var out, said strings.Builder
	cli.Doctor(doctor.Options{JSON: true}, &out, &said)
	if !strings.Contains(said.String(), "name=PM_REGISTRY_DIRS nearest=PM_REGISTRY_DIR") || strings.Contains(out.String(), "PM_REGISTRY_DIRS") {
		t.Errorf("got on stderr %s, on stdout %s; want the variable on stderr only", &said, &out)
	}
}

// TestFailedOpenLeavesNoLock checks that a server without a guardian that cannot open its database
// removes its lock, even if it has no record.
func TestFailedOpenLeavesNoLock(t *testing.T) {
	dir, id := t.TempDir(), uuid.NewString()
	database := filepath.Join(t.TempDir(), "pmcp.db")
	store, err := logstore.Open(t.Context(), logstore.Options{Path: database, Session: id})
	if err != nil {
		t.Fatal(err)
	}
	const versionAt = 60 // PRAGMA user_version, in the header of the file
	file, err := os.OpenFile(database, os.O_RDWR, 0)
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte{0, 0, 0x7f, 0xff}, versionAt)
	// With a directory in the way, the session cannot be registered.
	inTheWay := filepath.Join(dir, id+".procs", "full")
	if err := errors.Join(err, file.Close(), os.MkdirAll(inTheWay, 0o700)); err != nil {
		t.Fatal(err)
	}
	lock, err := registry.Prepare(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	s := &session{id: id, lock: lock, c: config.Config{RegistryDir: dir, DatabasePath: database, MaxLogSizeMB: 1}, log: slog.New(slog.DiscardHandler)}
	if err := s.open(t.Context(), os.Stdin); !errors.Is(err, logstore.ErrNewerSchema) || s.record != nil {
		t.Errorf("open = %v, record %v; want ErrNewerSchema and no record", err, s.record)
	}
	if _, err := os.Stat(filepath.Join(dir, id+".lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock: %v, want it removed", err)
	}
}

// openTest returns an open session of this process, without a guardian, that logs to log.
func openTest(t *testing.T, log io.Writer) *session {
	t.Helper()
	for name, value := range map[string]string{"PM_REGISTRY_DIR": "servers", "PM_DATABASE_PATH": "pmcp.db", "PM_PROJECT_DIR": ""} {
		t.Setenv(name, filepath.Join(t.TempDir(), value))
	}
	c, err := config.Read()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{id: uuid.NewString(), c: c, log: slog.New(slog.NewTextHandler(log, nil))}
	if s.lock, err = registry.Prepare(c.RegistryDir, s.id); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.release)
	if err := s.open(t.Context(), os.Stdin); err != nil {
		t.Fatal(err)
	}
	return s
}

// A stuck starter of members hangs as a system call may: it ignores its context.
type stuck struct{ started, end chan struct{} }

func (s stuck) StartMember(context.Context, string, process.IfRunning) (process.Status, error) {
	close(s.started)
	<-s.end
	return process.Status{}, groups.ErrClosed
}

func (s stuck) RanUnchanged(context.Context, process.Status) bool { return false }

// TestShutdownContinuesPastHangingStep checks that the steps after a hanging step are done, and
// that the log names the hanging step.
func TestShutdownContinuesPastHangingStep(t *testing.T) {
	var log strings.Builder
	s := openTest(t, &log)
	child, _, err := s.manager.Start(t.Context(), process.Spec{Name: "web", Command: "sleep", Args: []string{"1000"}}, process.KeepRunning)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.groups.Save(t.Context(), groups.Group{Name: "all", Members: []groups.Member{{Process: "api"}}}); err != nil {
		t.Fatal(err)
	}
	member, started := stuck{make(chan struct{}), make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(started)
		_, _ = s.groups.Start(context.WithoutCancel(t.Context()), "all", member, groups.StartOptions{})
	}()
	select {
	case <-member.started:
	case <-started:
		t.Fatal("Start returned without starting a member, want it to hang")
	}
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	if code := s.shutdown(t.Context(), stdout); code != exitFailed || !strings.Contains(log.String(), "cannot end the groups: "+guard.ErrTimeout.Error()) {
		t.Errorf("got exit code %d, want %d and the groups named: %s", code, exitFailed, log.String())
	}
	if st, err := s.manager.Status("web"); err != nil || st.State.Live() {
		t.Errorf("process %d: %v, %v; want it ended", child.PID, st.State, err)
	}
	if _, err := s.store.Runs(t.Context(), logstore.RunFilter{}); !errors.Is(err, logstore.ErrClosed) {
		t.Errorf("the database: %v, want ErrClosed", err)
	}
	if left, err := os.ReadDir(s.c.RegistryDir); err != nil || len(left) > 0 {
		t.Errorf("left of the record: %v, %v; want nothing", left, err)
	}
	if err := stdout.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("stdout: %v, want it closed", err)
	}
	close(member.end)
	<-started
	s.groups.Close()
}

// TestRecordStaysIfProcessesMaySurvive checks that the record stays if processes could not be killed or
// waited for, so that they can still be found.
func TestRecordStaysIfProcessesMaySurvive(t *testing.T) {
	s := openTest(t, io.Discard)
	hangs := make(chan struct{})
	defer close(hangs)
	for name, end := range map[string]func(e *guard.Ending) error{
		"survivors": func(e *guard.Ending) error {
			return e.Step("processes", time.Hour, func() error { return errors.Join(nil, fmt.Errorf("%w: pid 7", process.ErrSurvivors)) })
		},
		"timeout": func(e *guard.Ending) error {
			return e.Step("processes", 0, func() error { <-hangs; return nil })
		},
	} {
		if err := s.endRecord(end(guard.NewEnding())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, suffix := range []string{".json", ".procs", ".lock"} {
			if _, err := os.Stat(filepath.Join(s.c.RegistryDir, s.id+suffix)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	if code := s.shutdown(t.Context(), stdout); code != exitOK {
		t.Errorf("got exit code %d, want %d", code, exitOK)
	}
	if left, err := os.ReadDir(s.c.RegistryDir); err != nil || len(left) > 0 {
		t.Errorf("left of the record: %v, %v; want nothing", left, err)
	}
}

// TestSessionThatStartsNoDaemonSaysNoVersion checks that a session which may not start a daemon does not
// end one of another version.
func TestSessionThatStartsNoDaemonSaysNoVersion(t *testing.T) {
	for want, s := range map[string]*session{
		"":      {lifeline: new(guard.Lifeline)},
		version: {lifeline: new(guard.Lifeline), c: config.Config{Daemon: config.Daemon{AutoStart: true}}},
	} {
		if h, err := s.hello(); err != nil || h.Version != want {
			t.Errorf("got the version %q and %v, want %q", h.Version, err, want)
		}
	}
}
