package logstore

import (
	"context"
	"testing"
	"time"
)

// TestFirstErrorIsTheCause captures the output of failing programs and checks which error comes first by cause.
func TestFirstErrorIsTheCause(t *testing.T) {
	t.Parallel()
	type run struct {
		name, stderr string
		exit         int
	}
	for what, tc := range map[string]struct {
		runs []run
		want string // the title of the first error
		last string // the title of the last error; "" if there is one error
	}{
		"make": {[]run{{"build", "cc -c a.c\nsh: 1: flex: not found\nmake: *** [Makefile:2: lex.c] Error 127\nmake: *** [Makefile:7: all] Error 2\n", 2}},
			"flex: not found", ""},
		"a make without the reason, then the compiler of another target": {[]run{{"build", "make[1]: *** [Makefile:9: lib] Error 1\na.c:3:5: error: unknown type name 'x'\n", 2}},
			"unknown type name 'x'", "make: [Makefile:9: lib] Error 1"},
		"a script of npm": {[]run{{"build", "npm error Lifecycle script `build` failed with error:\nnpm error code 2\nnpm error path /w\nError: Command failed: tsc\nTypeError: no price\n    at price (/app/price.js:3:7)\n", 1}},
			"TypeError: no price", "Error: Command failed: tsc"},
		"a page that Next could not render": {[]run{{"build", "Error occurred prerendering page \"/\".\nExport encountered an error\n\nTypeError: no price\n    at price (app/price.js:3:7)\n", 1}},
			"TypeError: no price", "Error occurred prerendering page \"/\"."},
		"first and last": {[]run{{"web", "TypeError: no price\n    at price (/app/price.js:3:7)\n\nRangeError: too much\n    at pay (/app/pay.js:4:7)\n", 1}},
			"TypeError: no price", "RangeError: too much"},
		"a dead dependency": {[]run{
			{"api", "Error: connect ECONNREFUSED 127.0.0.1:5432\n    at TCPConnectWrap.afterConnect (node:net:1300:16)\n", 1},
			{"db", "FATAL:  data directory \"/data\" has wrong ownership\n", 1},
		}, `data directory "/data" has wrong ownership`, "Error: connect ECONNREFUSED 127.0.0.1:5432"},
		"a dependency that says nothing": {[]run{
			{"api", "Error: connect ECONNREFUSED 127.0.0.1:5432\n    at TCPConnectWrap.afterConnect (node:net:1300:16)\n", 1},
			{"db", "", 1},
		}, "exited with code 1", "Error: connect ECONNREFUSED 127.0.0.1:5432"},
	} {
		s := openTest(t, Options{})
		for _, r := range tc.runs {
			id, _, _ := s.NewRun("/p", r.name)
			s.Capture(id, Stderr, time.Now(), []byte(r.stderr))
			s.RunEnded(id, r.exit, "")
			s.EndCapture(id)
		}
		all, _, err := s.Faults(t.Context(), FaultQuery{Project: "/p"})
		if err != nil || len(all) == 0 {
			t.Fatalf("%s: got %v, %v; want errors", what, all, err)
		}
		SortByCause(all)
		if got := all[0].Title(); got != tc.want {
			t.Errorf("%s: got %q first, want %q", what, got, tc.want)
		}
		if got := all[len(all)-1].Title(); tc.last != "" && got != tc.last {
			t.Errorf("%s: got %q last, want %q", what, got, tc.last)
		}
		if tc.last == "" && len(all) > 1 {
			t.Errorf("%s: got %d errors, want one", what, len(all))
		}
	}
}

// TestRecognisedWaitsForOpenErrors checks that Recognised returns once the errors of the lines printed so far are
// known, and not before, and that it ends with its context while an error stays open.
func TestRecognisedWaitsForOpenErrors(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	s.Recognised(t.Context(), run) // nothing is open
	s.Recognised(t.Context(), run+1)
	s.Capture(run, Stderr, time.Now(), []byte("TypeError: no price\n    at price (/app/price.js:3:7)\n"))
	s.Recognised(t.Context(), run)
	if f := onlyFault(t, s, FaultQuery{}); f.File != "/app/price.js" {
		t.Errorf("got %+v, want the error at /app/price.js", f)
	}
	s.Capture(run, Stderr, time.Now(), []byte("Traceback (most recent call last):\n")) // silence does not complete it
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Recognised(ended, run)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Recognised(t.Context(), run)
	}()
	s.Capture(run, Stderr, time.Now(), []byte("  File \"/app/x.py\", line 3, in main\n    d['x']\nKeyError: 'x'\n"))
	s.RunEnded(run, 1, "")
	<-done
	if all, _, err := s.Faults(t.Context(), FaultQuery{}); err != nil || len(all) != 2 {
		t.Errorf("got %+v, %v; want two errors", all, err)
	}
}
