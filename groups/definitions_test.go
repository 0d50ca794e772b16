package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

func TestValidateNamesWhatIsWrong(t *testing.T) {
	many := Group{Name: "g"}
	for i := range maxMembers + 1 {
		many.Members = append(many.Members, on(fmt.Sprint("p", i)))
	}
	for _, test := range []struct {
		g    Group
		want string // part of the error; "" for none
	}{
		{Group{Name: "g"}, ""},
		{Group{Name: "g", Members: []Member{on("a"), on("b", "a healthy")}}, ""},
		{Group{Name: ""}, "name"},
		{Group{Name: "g", Members: []Member{on("a b")}}, "a b"},
		{Group{Name: "g", Members: []Member{on("a", "a")}}, "a depends on itself"},
		{Group{Name: "g", Members: []Member{on("a", "b")}}, `a depends on "b", which is not a member; members: a`},
		{Group{Name: "g", Members: []Member{on("a"), on("a")}}, "a is a member twice"},
		{Group{Name: "g", Members: []Member{on("a"), on("b", "a", "a ready")}}, "b depends on a twice"},
		{Group{Name: "g", Members: []Member{on("a"), on("b", "a up")}}, `with condition "up"`},
		{Group{Name: "g", Members: []Member{on("x"), on("web", "api"), on("api", "db", "x"), on("db", "web")}}, "cycle: web → api → db → web"},
		{Group{Name: "g", Members: []Member{on("front", "a"), on("a", "b"), on("b", "a")}}, "cycle: a → b → a"},
		{Group{Name: "g", StopStrategy: "random"}, "random"},
		{Group{Name: "g", StartDelay: -1}, "start_delay_ms"},
		{Group{Name: "g", StartDelay: time.Hour}, "start_delay_ms"},
		{Group{Name: "g", Description: strings.Repeat("x", maxDescription+1)}, "description"},
		{many, "101 members"},
	} {
		err := test.g.Validate()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%+v: got %v, want nil", test.g, err)
		case test.want != "" && (!errors.Is(err, process.ErrInvalid) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

// TestDefinitionsAreSharedAndEdited checks Save, Add, Remove and Delete on groups that
// two Managers share through one Journal.
func TestDefinitionsAreSharedAndEdited(t *testing.T) {
	j := &memJournal{}
	m := New(Options{Processes: newWorld(nil), Journal: j})
	defer m.Close()
	ctx := t.Context()
	first := Group{Name: "g", Members: []Member{on("db"), on("api", "db")}}
	if existed, changes, err := m.Save(ctx, first); err != nil || existed || len(changes) > 0 {
		t.Fatalf("got existed %v, changes %q, error %v, want false, none, nil", existed, changes, err)
	}
	// Another session of the project sees the group, and its changes are seen here.
	other := New(Options{Processes: newWorld(nil), Journal: j})
	defer other.Close()
	g, err := other.Add(ctx, "g", on("web", "api ready"), false)
	if err != nil || len(g.Members) != 3 {
		t.Fatalf("got %+v, %v, want 3 members", g, err)
	}
	second := Group{Name: "g", Members: []Member{on("web", "api"), on("api", "db"), on("cache"), on("db")}, StartDelay: time.Second, StopStrategy: StopParallel, Description: "new"}
	existed, changes, err := m.Save(ctx, second)
	want := []string{"web depends on api (was: api (ready))", "added cache", "start delay 1s (was: 0s)", "stop strategy parallel (was: reverse)", "new description"}
	if err != nil || !existed || !slices.Equal(changes, want) {
		t.Errorf("got existed %v, changes %q, error %v, want true, %q, nil", existed, changes, err, want)
	}
	if _, err := m.Remove(ctx, "g", "db"); !errors.Is(err, process.ErrInvalid) || !strings.Contains(err.Error(), "api depends on db") {
		t.Errorf("removing a dependency: got %v, want ErrInvalid naming api", err)
	}
	if _, err := m.Remove(ctx, "g", "absent"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "members: web, api, cache, db") {
		t.Errorf("removing a process that is not a member: got %v, want ErrUnknown naming the members", err)
	}
	if g, err := m.Remove(ctx, "g", "web"); err != nil || len(g.Members) != 3 {
		t.Errorf("removing web: got %+v, %v, want 3 members", g, err)
	}
	if g, err := m.Add(ctx, "g", on("api"), false); err != nil || len(g.Members) != 3 || len(g.Members[0].DependsOn) != 1 {
		t.Errorf("adding api without dependencies: got %+v, %v, want them kept", g, err)
	}
	if g, err := m.Add(ctx, "g", Member{Process: "api", DependsOn: []Dependency{}}, false); err != nil || len(g.Members) != 3 || len(g.Members[0].DependsOn) != 0 {
		t.Errorf("adding api with no dependencies: got %+v, %v, want none", g, err)
	}
	if _, err := m.Add(ctx, "g", on("x", "y"), false); !errors.Is(err, process.ErrInvalid) {
		t.Errorf("adding with an unknown dependency: got %v, want ErrInvalid", err)
	}
	if _, err := m.Add(ctx, "h", on("x"), false); !errors.Is(err, ErrUnknown) {
		t.Errorf("adding to an unknown group: got %v, want ErrUnknown", err)
	}
	if _, err := m.Add(ctx, "h", on("x"), true); err != nil {
		t.Error(err)
	}
	if err := m.Delete(ctx, "g"); err != nil {
		t.Error(err)
	}
	if err := m.Delete(ctx, "g"); !errors.Is(err, ErrUnknown) {
		t.Errorf("deleting twice: got %v, want ErrUnknown", err)
	}
	if list, err := m.List(ctx); err != nil || len(list) != 1 || list[0].Group.Name != "h" || list[0].State != Down || list[0].Members[0].Why != "not started in this session" {
		t.Errorf("got %+v, %v, want only h, down", list, err)
	}
}

// TestUnusableDefinitionDoesNotAffectOthers stores definitions that cannot be used,
// as a newer version might. List reports their problem, Start and Add refuse them,
// Save replaces them, and the other groups stay usable.
func TestUnusableDefinitionDoesNotAffectOthers(t *testing.T) {
	j := &memJournal{}
	m := New(Options{Processes: newWorld(nil), Journal: j})
	defer m.Close()
	ctx := t.Context()
	j.SaveGroup("", "bad", []byte(`{"members": 3}`))
	j.SaveGroup("", "circle", []byte(`{"name":"circle","members":[{"process":"a","depends_on":[{"process":"a"}]}]}`))
	if _, _, err := m.Save(ctx, Group{Name: "good", Members: []Member{on("a")}}); err != nil {
		t.Fatal(err)
	}
	list, err := m.List(ctx)
	if err != nil || len(list) != 3 || list[0].Problem == "" || list[1].Problem == "" || list[2].Problem != "" {
		t.Errorf("got %+v, %v, want problems for the first two only", list, err)
	}
	if _, err := m.Start(ctx, "bad", newWorld(nil), StartOptions{}); err == nil || !strings.Contains(err.Error(), "create it again") {
		t.Errorf("starting: got %v, want the problem", err)
	}
	if _, err := m.Add(ctx, "bad", on("a"), true); err == nil {
		t.Error("adding to an unusable definition: got nil, want an error")
	}
	if existed, _, err := m.Save(ctx, Group{Name: "bad"}); err != nil || !existed {
		t.Errorf("replacing it: got existed %v, %v, want true", existed, err)
	}
	j.err = errors.New("disk on fire")
	if _, err := m.List(ctx); !errors.Is(err, j.err) {
		t.Errorf("got %v, want %v", err, j.err)
	}
}

func TestNumberOfGroupsIsBounded(t *testing.T) {
	m := New(Options{Processes: newWorld(nil), Journal: &memJournal{}})
	defer m.Close()
	for i := range maxGroups {
		if _, _, err := m.Save(t.Context(), Group{Name: fmt.Sprint("g", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := m.Save(t.Context(), Group{Name: "g"}); !errors.Is(err, process.ErrInvalid) {
		t.Errorf("one group too many: got %v, want ErrInvalid", err)
	}
	if _, err := m.Add(t.Context(), "g", on("a"), true); !errors.Is(err, process.ErrInvalid) {
		t.Errorf("one group too many: got %v, want ErrInvalid", err)
	}
	if _, _, err := m.Save(t.Context(), Group{Name: "g0", Description: "x"}); err != nil {
		t.Errorf("replacing one: got %v, want nil", err)
	}
}

// TestMemberRemovedDuringStartIsNotStarted checks that a member that is removed from
// the group while it waits for its dependencies is skipped.
func TestMemberRemovedDuringStartIsNotStarted(t *testing.T) {
	for how, remove := range map[string]func(ctx context.Context, m *Manager) error{
		"one": func(ctx context.Context, m *Manager) error { _, err := m.Remove(ctx, "g", "web"); return err },
		"all": func(ctx context.Context, m *Manager) error { return m.Delete(ctx, "g") },
		"another": func(ctx context.Context, m *Manager) error {
			_, _, err := m.Save(ctx, Group{Name: "g", Members: []Member{on("db")}})
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(map[string]program{"db": {rule: true, readyAfter: time.Minute}})
			m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
			started := make(chan Report)
			go func() {
				report, err := m.Start(context.Background(), "g", w, StartOptions{})
				if err != nil {
					t.Error(err)
				}
				started <- report
			}()
			synctest.Wait() // web waits for db
			if err := remove(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			o := outcomesByProcess(<-started)
			if o["web"].Result != Skipped || !strings.Contains(o["web"].Why, "removed from the group") || len(w.starts["web"]) != 0 {
				t.Errorf("%s: got %+v with %d starts, want skipped without a start", how, o["web"], len(w.starts["web"]))
			}
			if o["db"].Result != BecameReady {
				t.Errorf("%s: got %+v, want %s", how, o["db"], BecameReady)
			}
		})
	}
}
