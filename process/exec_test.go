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

func TestExec(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	exit, out, err := m.Exec(testContext(t), shell("a", "echo out; echo err >&2; pwd; exit 3"), 1000)
	if err != nil || exit != (Exit{Code: 3, By: BySelf}) || string(out) != "out\nerr\n"+m.Project()+"\n" {
		t.Errorf("Exec = %+v, %q, %v", exit, out, err)
	}
	if _, out, err = m.Exec(testContext(t), shell("a", "seq 1 100000"), 6); err != nil || string(out) != "100000\n"[1:] {
		t.Errorf("last 6 bytes: %q, %v", out, err)
	}
	if _, _, err = m.Exec(testContext(t), Spec{Name: "a", Command: "no-such-program"}, 10); !errors.Is(err, ErrNoExecutable) {
		t.Errorf("Exec of nothing: %v", err)
	}
	if len(m.List()) != 0 {
		t.Errorf("entries: %v", m.List())
	}
}

func TestExecLeavesNothing(t *testing.T) {
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
		t.Errorf("alive after Exec: %v of %d", left, pid)
	}
}

func TestExecIsCutShort(t *testing.T) {
	t.Run("by its context", func(t *testing.T) {
		m, _ := newTestManager(t, Options{})
		ctx, cancel := context.WithCancel(testContext(t))
		go func() {
			defer cancel()
			for ctx.Err() == nil { // until it has printed
				if _, err := os.Stat(filepath.Join(m.Project(), "printed")); err == nil {
					return
				}
				<-time.After(10 * time.Millisecond)
			}
		}()
		if _, out, err := m.Exec(ctx, shell("a", "echo begun; : >printed; exec sleep 1000"), 100); !errors.Is(err, context.Canceled) || string(out) != "begun\n" {
			t.Errorf("Exec = %q, %v", out, err)
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
		for len(m.deps.tree.everything()) == 0 { // until it runs
			if t.Context().Err() != nil {
				t.Fatal("never began")
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
