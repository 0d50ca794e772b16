package logstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestClearFreesFullDisk checks that Clear frees space on a full disk. A helper program fills a
// small file system of its own: right after everything was written to the write-ahead log, after
// that log was truncated, and while no server runs.
func TestClearFreesFullDisk(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"busy", "idle", "start"} {
		t.Run(when, func(t *testing.T) { clearOnAFullDisk(t, when) })
	}
}

func clearOnAFullDisk(t *testing.T, when string) {
	cmd := exec.Command(os.Args[0], t.TempDir(), when)
	cmd.Env = append(os.Environ(), helperEnv+"=tmpfs")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.As(err, &exit) && exit.ExitCode() == noTmpfs {
		t.Skipf("cannot mount a file system here: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("helper: got %v, want success\n%s", err, out)
	}
}

const noTmpfs = 77

// helperTmpfs mounts a file system of 24 MiB and runs its part of TestClearFreesFullDisk there.
func helperTmpfs() int {
	dir := os.Args[1]
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		fmt.Println(err)
		return noTmpfs
	}
	path, other := filepath.Join(dir, "pmcp.db"), filepath.Join(dir, "full")
	work := func() error { return clearFull(path, other, os.Args[2] == "idle") }
	if os.Args[2] == "start" {
		work = func() error { return startFull(path, other) }
	}
	if err := work(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// clearFull stores lines until another file takes the rest of the disk, and then clears them.
func clearFull(path, other string, idle bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Open(ctx, Options{Path: path})
	if err != nil {
		return err
	}
	defer s.Close()
	old, kept := startRun(s, "/p", "old"), startRun(s, "/p", "kept")
	if err := errors.Join(putAll(s, old, 1, 200_000), putAll(s, kept, 1, 1000), s.Flush(ctx)); err != nil {
		return err
	}
	if err := s.file.EnsureReserve(); err != nil { // the Store's worker may not have reserved the space yet
		return err
	}
	if idle {
		if err := truncateLog(s); err != nil {
			return err
		}
	}
	if err := fillDisk(other); err != nil {
		return err
	}
	put(s, kept, 1001, 90_000)
	put(s, old, 200_001, 201_000)
	if err := s.Flush(ctx); err == nil && idle { // a write-ahead log that was not truncated may still have room
		return errors.New("flush to a full disk: got no error, want one")
	}
	lines, _, err := s.Clear(ctx, "/p", []string{"old"}, time.Time{})
	if err != nil || lines != 201_000 {
		return fmt.Errorf("got %d lines cleared, %w; want %d", lines, err, 201_000)
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	if st := s.Status(); st.State != StateOK {
		return fmt.Errorf("got status %+v, want OK", st)
	}
	p, err := s.Read(ctx, Query{Names: []string{"kept"}, After: CursorStart, Limit: 100_000})
	if err != nil || len(p.Lines) != 90_000 || len(p.Gaps) > 0 {
		return fmt.Errorf("kept: got %d lines and %d gaps, %w; want %d lines", len(p.Lines), len(p.Gaps), err, 90_000)
	}
	p, err = s.Read(ctx, Query{Names: []string{"old"}, After: CursorStart, Limit: 100_000})
	if err != nil || len(p.Lines) != 0 {
		return fmt.Errorf("cleared: got %d lines, %w; want none", len(p.Lines), err)
	}
	return nil
}

// startFull opens a Store on a disk that has filled up since the Store was last closed, and clears
// the log.
func startFull(path, other string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Open(ctx, Options{Path: path})
	if err != nil {
		return err
	}
	run := startRun(s, "/p", "old")
	err = putAll(s, run, 1, 200_000)
	endRun(s, run)
	if err := errors.Join(err, s.Flush(ctx), s.file.EnsureReserve(), s.Close(), fillDisk(other)); err != nil {
		return err
	}
	if s, err = Open(ctx, Options{Path: path}); err != nil {
		return err
	}
	defer s.Close()
	lines, _, err := s.Clear(ctx, "/p", nil, time.Time{})
	if err != nil || lines != 200_000 || s.Status().State != StateOK {
		return fmt.Errorf("got %d lines cleared, %w, status %+v; want %d and OK", lines, err, s.Status(), 200_000)
	}
	return nil
}

// fillDisk writes to a file until the disk is full.
func fillDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}
