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

// TestClearOnAFullDisk has a helper fill a small file system of its own: just after all was written
// to the write-ahead log, when that has been cut to nothing, and when there is no server.
func TestClearOnAFullDisk(t *testing.T) {
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
		t.Skipf("no file system of one's own here: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

const noTmpfs = 77

// helperTmpfs mounts a file system of 24 MiB and works on it.
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

// clearFull stores lines until the rest of the disk is taken by another file, and then clears them.
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
	if err := s.file.keepReserve(); err != nil { // the worker may not have come to it yet
		return err
	}
	if idle {
		if err := cutLog(s); err != nil {
			return err
		}
	}
	if err := fillDisk(other); err != nil {
		return err
	}
	put(s, kept, 1001, 90_000)
	put(s, old, 200_001, 201_000)
	if err := s.Flush(ctx); err == nil && idle { // a log that was not cut may have room of its own
		return errors.New("a flush to a full disk succeeded")
	}
	lines, _, err := s.Clear(ctx, "/p", []string{"old"}, time.Time{})
	if err != nil || lines != 201_000 {
		return fmt.Errorf("cleared %d lines: %w", lines, err)
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	if st := s.Status(); st.State != StateOK {
		return fmt.Errorf("status %+v", st)
	}
	p, err := s.Read(ctx, Query{Names: []string{"kept"}, After: CursorStart, Limit: 100_000})
	if err != nil || len(p.Lines) != 90_000 || len(p.Gaps) > 0 {
		return fmt.Errorf("%d lines and %d gaps of what was kept: %w", len(p.Lines), len(p.Gaps), err)
	}
	p, err = s.Read(ctx, Query{Names: []string{"old"}, After: CursorStart, Limit: 100_000})
	if err != nil || len(p.Lines) != 0 {
		return fmt.Errorf("%d lines of what was cleared: %w", len(p.Lines), err)
	}
	return nil
}

// startFull has a server start on a disk that has filled since the last one ended.
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
	if err := errors.Join(err, s.Flush(ctx), s.file.keepReserve(), s.Close(), fillDisk(other)); err != nil {
		return err
	}
	if s, err = Open(ctx, Options{Path: path}); err != nil {
		return err
	}
	defer s.Close()
	lines, _, err := s.Clear(ctx, "/p", nil, time.Time{})
	if err != nil || lines != 200_000 || s.Status().State != StateOK {
		return fmt.Errorf("cleared %d lines: %w; %+v", lines, err, s.Status())
	}
	return nil
}

// fillDisk takes all the room there is.
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
