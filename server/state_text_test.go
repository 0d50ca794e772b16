package server

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
)

// ends are scripts that end badly, with the word that texts use for it.
var ends = map[string]struct{ script, want string }{
	"lint":    {"echo 'a.go:3: unused'; exit 1", "failed, exit code 1"},
	"usage":   {"echo 'unknown flag -x' >&2; exit 2", "failed, exit code 2"},
	"python":  {traceback + "exit 1", "crashed, exit code 1"},
	"go":      {`printf 'panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/app/main.go:5 +0x54\nexit status 2\n' >&2; exit 2`, "crashed, exit code 2"},
	"caught":  {traceback + "seq 100 >&2; exit 1", "failed, exit code 1"},
	"child":   {"sh -c 'kill -SEGV $$'; exit $?", "crashed, exit code 139"},
	"signal":  {"kill -SEGV $$", "crashed, SIGSEGV"},
	"missing": {"no-such-program-anywhere", "failed, exit code 127"},
}

// TestOnlyUnchosenEndIsCrash checks that the texts of every tool call an end with a chosen exit code a
// failure, and one by a signal or an error that nothing caught a crash; that the structured state
// of both is crashed; and that the list finds a run by either word.
func TestOnlyUnchosenEndIsCrash(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for name, end := range ends {
		data := s.script(name, end.script, "wait", "exit")
		if data["state"] != "crashed" {
			t.Errorf("%s: got %v, want the state crashed", name, data)
		}
	}
	for tool, arguments := range map[string]map[string]any{
		"list_processes": {"state": "crashed"}, "get_process_info": {}, "wait_for_process": {"until": "exit"}, "get_process_stats": {},
	} {
		for name, end := range ends {
			if tool != "list_processes" {
				arguments["process"] = name
			}
			want := name + ": " + end.want
			if tool == "get_process_stats" {
				want, _, _ = strings.Cut(want, ",")
			}
			if _, text := s.do(tool, arguments); !strings.Contains(text, want) {
				t.Errorf("%s: got\n%s\nwant %q in it", tool, text, want)
			}
		}
	}
	_, failed := s.do("list_processes", map[string]any{"state": "failed"})
	for name, end := range ends {
		if got, want := strings.Contains(failed, name+": "), strings.HasPrefix(end.want, "failed"); got != want {
			t.Errorf("%s: got it among the failed: %v, want %v in\n%s", name, got, want, failed)
		}
	}
	s.script("lint", "exit 3", "wait", "exit")
	if _, text := s.do("get_process_info", map[string]any{"process": "lint"}); !regexp.MustCompile(`  1: failed, exit code 1, `).MatchString(text) {
		t.Errorf("got\n%s\nwant the run before as failed", text)
	}
}

// TestStoredEndKeepsItsWord checks that a later session calls a stored end by the word of the session that
// saw it, and one that was stored without what happened a failure.
func TestStoredEndKeepsItsWord(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for name, end := range ends {
		s.script(name, end.script, "wait", "exit")
	}
	var runs []project.Run
	proctest.Await(t, "the ends are stored", func() bool {
		var err error
		runs, err = s.server.events.store.Latest(t.Context(), s.manager.Project(), slices.Collect(maps.Keys(ends)))
		stdiotest.NoErr(t, err)
		return len(runs) == len(ends) && !slices.ContainsFunc(runs, func(r project.Run) bool { return r.Exit == nil })
	})
	got := make(map[string]string)
	for i := range runs {
		got[runs[i].Spec.Name] = fmt.Sprintf("%s, %s", runs[i].StateText(), runs[i].Exit)
	}
	for name, end := range ends {
		if got[name] != end.want {
			t.Errorf("%s: got %q, want %q", name, got[name], end.want)
		}
	}
	earlier := s.otherStore(neighbour)
	s.saveOther(earlier, s.otherRun(earlier, "old"), runInfo{State: "crashed", ExitCode: new(1), EndedBy: "self", Owner: project.Owner{PID: 7}}, true)
	if _, text := s.do("get_process_info", map[string]any{"process": "old"}); !strings.Contains(text, "old: failed, exit code 1") {
		t.Errorf("got\n%s\nwant old as failed", text)
	}
}

// TestRemovedDirectoryIsNamed checks that the text of a process says that its directory was removed, also if there
// is a new one in its place, but not if it was moved, and that a start in a removed project says what to do.
func TestRemovedDirectoryIsNamed(t *testing.T) {
	t.Parallel()
	s := hello(t)
	project := s.manager.Project()
	for _, name := range []string{"removed", "replaced", "moved"} {
		stdiotest.NoErr(t, os.Mkdir(filepath.Join(project, name), 0o700))
		s.script(name, "exec sleep 100", "cwd", name)
	}
	s.script("here", "exec sleep 100")
	for _, name := range []string{"removed", "replaced"} {
		stdiotest.NoErr(t, os.Remove(filepath.Join(project, name)))
	}
	if runtime.GOOS == "linux" { // elsewhere the path counts
		stdiotest.NoErr(t, os.Mkdir(filepath.Join(project, "replaced"), 0o700))
		stdiotest.NoErr(t, os.Rename(filepath.Join(project, "moved"), filepath.Join(project, "away")))
	}
	for name, want := range map[string]bool{"removed": true, "replaced": true, "moved": false, "here": false} {
		text := "its directory was removed: " + filepath.Join(project, name)
		for tool, arguments := range map[string]map[string]any{"list_processes": {}, "wait_for_process": {"process": name, "until": "idle", "timeout_ms": 0}} {
			if _, got := s.do(tool, arguments); strings.Contains(got, text) != want {
				t.Errorf("%s: got\n%s\nwant %q in it: %v", tool, got, text, want)
			}
		}
	}

	call := func(tool string, arguments map[string]any) string {
		return s.ask("tools/call", map[string]any{"name": tool, "arguments": arguments}).Text()
	}
	failed := call("start_process", map[string]any{"name": "deep", "command": "true", "cwd": "no/such/dir"})
	if want := "there is no " + filepath.Join(project, "no") + "; make it, or give another cwd"; !strings.Contains(failed, want) {
		t.Errorf("got %s, want %q", failed, want)
	}
	stdiotest.NoErr(t, os.RemoveAll(project))
	const gone = " was removed; make it again, or give an absolute cwd elsewhere"
	for tool, arguments := range map[string]map[string]any{
		"start_process":   {"name": "new", "command": "true", "env_files": []string{".env"}},
		"restart_process": {"process": "here"},
		"start_group":     {"group": "g", "members": []map[string]any{{"process": "m", "command": "true"}}},
		"get_server_info": {},
	} {
		if text := call(tool, arguments); !strings.Contains(text, "the project's directory "+project+gone) {
			t.Errorf("%s: got %s, want %q", tool, text, project+gone)
		}
	}
	if _, text := s.do("start_process", map[string]any{"name": "new", "command": "true", "cwd": t.TempDir(), "wait": "exit"}); !strings.Contains(text, "exit code 0") {
		t.Errorf("got %s, want a start elsewhere", text)
	}
}
