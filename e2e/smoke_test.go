package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestVersionIsPrinted checks that --version and get_server_info have the same version, commit and
// date.
func TestVersionIsPrinted(t *testing.T) {
	w := newWorld(t)
	cmd := exec.Command(binary(t), "--version")
	cmd.Env = w.env
	out, err := cmd.Output()
	check(t, err)
	if !regexp.MustCompile(`(?i)pmcp.*go1\.`).MatchString(strings.ReplaceAll(string(out), "\n", " ")) {
		t.Errorf("got %q, want pmcp and the version of Go", out)
	}
	r := w.open(t).ok(t, "get_server_info", nil)
	if want := fmt.Sprintf("pmcp %v (commit %v, built %v,", r.Data["server_version"], r.Data["build_commit"], r.Data["build_date"]); !strings.HasPrefix(string(out), want) {
		t.Errorf("got %q, want %q as get_server_info has them", out, want)
	}
}

func TestDoctorSucceedsWithoutRecords(t *testing.T) {
	w := newWorld(t)
	cmd := exec.Command(binary(t), "--doctor")
	cmd.Env = w.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("got %v, want exit code 0: %s", err, out)
	}
}

// TestSessionEndsOnEOFAndSIGTERM starts sessions with and without a guardian, ends them by
// EOF and by SIGTERM, and checks that they exit.
func TestSessionEndsOnEOFAndSIGTERM(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string][]string{"guarded": nil, "no guardian": {"--no-guardian"}} {
		for end, stop := range map[string]func(*session){
			"EOF":     func(s *session) { s.closeInput(t) },
			"SIGTERM": func(s *session) { s.signal(t, syscall.SIGTERM) },
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				w := newWorld(t)
				s := w.start(t, arguments...)
				if info, _ := s.initialize(t).Result["serverInfo"].(map[string]any); info["name"] != "pmcp" {
					t.Errorf("got server %v, want pmcp", info)
				}
				if m := s.call(t, "tools/list", nil); m.Error != nil {
					t.Errorf("got %s, want a result", m.Raw)
				}
				if len(w.records(t)) == 0 {
					t.Error("got no record while the session runs, want one")
				}
				stop(s)
				if code := s.exit(t); code != 0 {
					t.Errorf("got exit code %d, want 0; stderr:\n%s", code, s.stderr)
				}
				w.awaitEmpty(t)
			})
		}
	}
}

func TestModernSessionNeedsNoHandshake(t *testing.T) {
	t.Parallel()
	s := newWorld(t).start(t)
	s.modern = true
	if m := s.call(t, "server/discover", nil); m.Error != nil || m.Result["resultType"] != "complete" {
		t.Errorf("got %s, want a complete result", m.Raw)
	}
	if m := s.call(t, "tools/list", nil); m.Error != nil {
		t.Errorf("got %s, want a result", m.Raw)
	}
}
