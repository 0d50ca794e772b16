package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestVersion(t *testing.T) {
	w := newWorld(t)
	cmd := exec.Command(binary(t), "--version")
	cmd.Env = w.env
	out, err := cmd.Output()
	check(t, err)
	if !regexp.MustCompile(`(?i)pmcp.*go1\.`).MatchString(strings.ReplaceAll(string(out), "\n", " ")) {
		t.Errorf("%q", out)
	}
}

func TestDoctorOnNothing(t *testing.T) {
	w := newWorld(t)
	cmd := exec.Command(binary(t), "--doctor")
	cmd.Env = w.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSessionEnds begins a session in each way and ends it in each way.
func TestSessionEnds(t *testing.T) {
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
					t.Errorf("server %v", info)
				}
				if m := s.call(t, "tools/list", nil); m.Error != nil {
					t.Errorf("%s", m.Raw)
				}
				if len(w.records(t)) == 0 {
					t.Error("no record while it runs")
				}
				stop(s)
				if code := s.exit(t); code != 0 {
					t.Errorf("exit code %d; stderr:\n%s", code, s.stderr)
				}
				w.awaitEmpty(t)
			})
		}
	}
}

func TestModernSession(t *testing.T) {
	t.Parallel()
	s := newWorld(t).start(t)
	s.modern = true
	if m := s.call(t, "server/discover", nil); m.Error != nil || m.Result["resultType"] != "complete" {
		t.Errorf("%s", m.Raw)
	}
	if m := s.call(t, "tools/list", nil); m.Error != nil {
		t.Errorf("%s", m.Raw)
	}
}
