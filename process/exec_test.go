package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestExecReturnsExitAndLastOutput(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	exit, out, err := m.Exec(testContext(t), shell("a", "echo out; echo err >&2; pwd; exit 3"), 1000)
	if err != nil || exit != (Exit{Code: 3, By: BySelf}) || string(out) != "out\nerr\n"+m.Project()+"\n" {
		t.Errorf("Exec = %+v, %q, %v; want code 3 and both streams", exit, out, err)
	}
	if _, out, err = m.Exec(testContext(t), shell("a", "seq 1 100000"), 6); err != nil || string(out) != "100000\n"[1:] {
		t.Errorf("last 6 bytes: %q, %v; want %q", out, err, "00000\n")
	}
	if _, _, err = m.Exec(testContext(t), Spec{Name: "a", Command: "no-such-program"}, 10); !errors.Is(err, ErrNoExecutable) {
		t.Errorf("Exec of an unknown program: %v, want ErrNoExecutable", err)
	}
	if len(m.List()) != 0 {
		t.Errorf("entries: %v, want none", m.List())
	}
}

func TestExecLeavesNoProcess(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	_, out, err := m.Exec(testContext(t), shell("a", "sleep 1000 & echo $!"), 100)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	for _, c := range strings.TrimSpace(string(out)) {
		pid = 10*pid + int(c-'0')
	}
	if left := alive([]int{pid}); pid == 0 || len(left) > 0 {
		t.Errorf("alive after Exec: %v, want not %d", left, pid)
	}
}

func TestExecEndsEarly(t *testing.T) {
	t.Run("by its context", func(t *testing.T) {
		m, _ := newTestManager(t, Options{})
		ctx, cancel := context.WithCancel(testContext(t))
		go func() {
			defer cancel()
			for ctx.Err() == nil { // wait until the command has printed
				if _, err := os.Stat(filepath.Join(m.Project(), "printed")); err == nil {
					return
				}
				<-time.After(10 * time.Millisecond)
			}
		}()
		if _, out, err := m.Exec(ctx, shell("a", "echo begun; : >printed; exec sleep 1000"), 100); !errors.Is(err, context.Canceled) || string(out) != "begun\n" {
			t.Errorf("Exec = %q, %v; want the output so far and context.Canceled", out, err)
		}
		cancel()
	})
	t.Run("by Close", func(t *testing.T) {
		m, _ := newTestManager(t, Options{})
		done := make(chan error, 1)
		go func() {
			_, _, err := m.Exec(context.Background(), helper("a", "block"), 100)
			done <- err
		}()
		for len(m.deps.tree.descendants()) == 0 { // wait until the command runs
			if t.Context().Err() != nil {
				t.Fatal("the command did not start")
			}
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Exec during Close = %v, want ErrClosed", err)
		}
		if _, _, err := m.Exec(t.Context(), shell("a", "true"), 10); !errors.Is(err, ErrClosed) {
			t.Errorf("Exec after Close = %v, want ErrClosed", err)
		}
	})
}
