package server

import (
	"slices"
	"testing"

	"pmcp/groups"
	"pmcp/server/stdio/stdiotest"
)

// TestProcfileIsGroup starts a Procfile as a group, and again after it was edited.
func TestProcfileIsGroup(t *testing.T) {
	s := offering(t, map[string]string{"Procfile": "web: sleep 100\nworker: sleep 101\n"})
	has(t, second(s.do("start_group", map[string]any{"group": "Procfile"})), "group Procfile: up", "web: started", "worker: started")
	s.do("add_to_group", map[string]any{"group": "Procfile", "process": "web", "depends_on": []string{"worker"}})
	s.write(map[string]string{"Procfile": "web: sleep 200\nworker: sleep 101\nmore: sleep 102\n"})
	has(t, second(s.do("start_group", map[string]any{"group": "Procfile"})), "Procfile now has another command for web: sleep 200", "more: started", "web: skipped (already running)")
	has(t, second(s.do("list_groups", map[string]any{"group": "Procfile"})), "worker")
	st, err := s.server.o.Groups.Group(t.Context(), "Procfile")
	stdiotest.NoErr(t, err)
	if i := slices.IndexFunc(st.Members, func(m groups.Member) bool { return m.Process == "web" }); i < 0 || len(st.Members[i].DependsOn) != 1 {
		t.Errorf("got members %+v, want web still to depend on worker", st.Members)
	}
	has(t, s.fails("start_group", map[string]any{"group": "Procfile.dev"}), "no such group")
	s.write(map[string]string{"package.json": `{"scripts": {"api": "api", "worker": "no"}}`})
	has(t, second(s.do("start_group", map[string]any{"group": "two", "members": []map[string]any{{"process": "api"}, {"process": "worker"}}})), "api: started", "worker: skipped (already running)")
	has(t, second(s.do("start_process", map[string]any{"name": "api"})), "npm run api")
	has(t, second(s.do("start_group", map[string]any{"group": "mine", "members": []map[string]any{{"process": "more"}}})), "more: skipped (already running)")
}
