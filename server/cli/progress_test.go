package cli

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressIsShownAndRemoved checks that a line about long work comes, that output replaces
// it, and that nothing of it is left. Short work and files get none.
func TestProgressIsShownAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		n := 0
		p := startProgress(&screen, 30, func() string { n++; return fmt.Sprintf("searching %d", n) })
		time.Sleep(progressAfter + progressEach + progressEach/2)
		synctest.Wait()
		if got := screen.String(); got != "\rpmcp: searching 1, 0 s\x1b[K\rpmcp: searching 2, 1 s\x1b[K" {
			t.Errorf("got %q, want two lines, one over the other", got)
		}
		screen.Reset()
		if _, err := fmt.Fprintln(p.Over(&screen), "found"); err != nil || screen.String() != "\r\x1b[Kfound\n" {
			t.Errorf("got %q, %v, want the output in place of the line", screen.String(), err)
		}
		screen.Reset()
		p.End()
		p.End()
		if got := screen.String(); got != "" {
			t.Errorf("got %q after the end, want nothing: the line was removed before", got)
		}

		short := startProgress(&screen, 30, func() string { return "short" })
		short.End()
		narrow := startProgress(&screen, 10, func() string { return strings.Repeat("x", 100) })
		time.Sleep(progressAfter + time.Millisecond)
		synctest.Wait()
		narrow.End()
		if got := screen.String(); got != "\rpmcp: xx…\x1b[K\r\x1b[K" {
			t.Errorf("got %q, want one line of 9 columns, which was removed", got)
		}
	})
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := StartProgress(file, func() string { return "to a file" })
	if p != nil || p.Over(file) != file {
		t.Error("got progress in a file, want none")
	}
	p.End()
}
