package registry

import (
	"errors"
	"os"
	"path/filepath"
	"pmcp/registry/registrytest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

func TestSessionIsAliveFromCreateToRemove(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	if Alive(dir, id) {
		t.Error("Alive = true before the session was created, want false")
	}
	lock, err := create(dir, id)
	must(t, err)
	if !Alive(dir, id) {
		t.Error("Alive = false while the lock is held, want true")
	}
	if got := registrytest.Files(t, dir); !slices.Equal(got, []string{id + ".lock"}) {
		t.Errorf("got the files %v, want only the lock", got)
	}
	if _, err := create(dir, id); err == nil {
		t.Error("a second create succeeded, want an error")
	}
	must(t, lock.Close())
	if Alive(dir, id) {
		t.Error("Alive = true although the lock is free, want false")
	}
	for _, suffix := range []string{".json", ".sock", ".procs", ".lock"} { // as a killed server leaves them
		registrytest.Write(t, unfinished(dir, id, suffix), "")
		registrytest.Write(t, file(dir, id, suffix), "")
	}
	for range 2 {
		must(t, Remove(dir, id))
	}
	if got := registrytest.Files(t, dir); len(got) != 0 {
		t.Errorf("files after Remove: %v, want none", got)
	}
}

// TestPreparedLockIsInvisible checks that a guardian that is killed before it has started
// a server leaves no file behind.
func TestPreparedLockIsInvisible(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	lock, err := Prepare(dir, id)
	must(t, err)
	if list, err := List(dir); err != nil || len(list) != 0 || Alive(dir, id) {
		t.Errorf("before Publish: %+v, %v, alive %v; want no entry", list, err, Alive(dir, id))
	}
	if runtime.GOOS == "linux" && len(registrytest.Files(t, dir)) != 0 {
		t.Errorf("files before Publish: %v, want none", registrytest.Files(t, dir))
	}
	must(t, Publish(lock, dir, id))
	if got := registrytest.Files(t, dir); !slices.Equal(got, []string{id + ".lock"}) || !Alive(dir, id) {
		t.Errorf("after Publish: %v, alive %v; want the lock, true", got, Alive(dir, id))
	}
	if err := Publish(lock, dir, id); err == nil {
		t.Error("a second Publish succeeded, want an error")
	}
	must(t, lock.Close())
	if Alive(dir, id) {
		t.Error("Alive = true although the lock is free, want false")
	}
}

// TestPublishRenamesUnfinishedLock checks that the lock has an unfinished name until Publish renames
// it, if the file system does not support files without a name.
func TestPublishRenamesUnfinishedLock(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	must(t, makeDir(dir))
	lock, err := os.OpenFile(unfinished(dir, id, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer func() { _ = lock.Close() }()
	must(t, flock(lock, unix.LOCK_EX))
	must(t, Publish(lock, dir, id))
	if got := registrytest.Files(t, dir); !slices.Equal(got, []string{id + ".lock"}) || !Alive(dir, id) {
		t.Errorf("after Publish: %v, alive %v; want the lock, true", got, Alive(dir, id))
	}
}

func TestFilesAreClosedToOtherUsers(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	defer func() { _ = lock.Close() }()
	reg, err := Register(dir, id, Record{})
	must(t, err)
	for path, want := range map[string]os.FileMode{
		dir: 0o700 | os.ModeDir, file(dir, id, ".lock"): 0o600, file(dir, id, ".json"): 0o600, file(dir, id, ".procs"): 0o600,
	} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	must(t, reg.Close())
}

// TestLockIsHeldWhileGuardianOrServerLives checks that guardian and server share the lock, which is held while
// either of them lives.
func TestLockIsHeldWhileGuardianOrServerLives(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	heir := startHeir(t, lock)
	must(t, lock.Close())
	if !Alive(dir, id) {
		t.Error("Alive = false while the heir holds the lock, want true")
	}
	must(t, heir.Process.Kill())
	_ = heir.Wait()
	if Alive(dir, id) {
		t.Error("Alive = true although both are dead, want false")
	}
}

func TestUnsafeDirectoriesAreRefused(t *testing.T) {
	root := t.TempDir()
	plain := filepath.Join(root, "file")
	registrytest.Write(t, plain, "")
	open := filepath.Join(root, "open")
	must(t, os.Mkdir(open, 0o700))
	must(t, os.Chmod(open, 0o777))
	good := filepath.Join(root, "good")
	must(t, os.Mkdir(good, 0o755))
	link := filepath.Join(root, "link")
	must(t, os.Symlink(good, link))
	unsafe := map[string]string{"not a directory": plain, "others may write to": open, "symbolic link": link}
	if os.Getuid() == 0 {
		others := filepath.Join(root, "others")
		must(t, os.Mkdir(others, 0o700))
		must(t, os.Chown(others, 12345, -1))
		unsafe["belongs to user"] = others
	}
	for name, dir := range unsafe { // by words of the error
		id := uuid.NewString()
		if _, err := create(dir, id); !errors.Is(err, ErrUnsafeDir) {
			t.Errorf("create in %s: %v, want ErrUnsafeDir", name, err)
		}
		if _, err := Register(dir, id, Record{}); !errors.Is(err, ErrUnsafeDir) {
			t.Errorf("Register in %s: %v, want ErrUnsafeDir", name, err)
		}
		if _, err := List(dir); !errors.Is(err, ErrUnsafeDir) || !strings.Contains(err.Error(), name) {
			t.Errorf("List of %s: %v, want ErrUnsafeDir with these words", name, err)
		}
		if _, err := Sweep(t.Context(), dir, nil); !errors.Is(err, ErrUnsafeDir) {
			t.Errorf("Sweep of %s: %v, want ErrUnsafeDir", name, err)
		}
	}
	below := filepath.Join(plain, "x", "y") // as with a HOME of /dev/null: a server can do without a record
	if _, err := create(below, uuid.NewString()); err == nil || errors.Is(err, ErrUnsafeDir) {
		t.Errorf("create below a file: %v, want an error that is not ErrUnsafeDir", err)
	}
	if all, err := List(below); err != nil || len(all) > 0 {
		t.Errorf("List below a file: %v, %v, want none", all, err)
	}
	lock, err := create(good, uuid.NewString())
	if err != nil {
		t.Fatalf("create in a directory that others may only list: %v, want nil", err)
	}
	must(t, lock.Close())
}

func TestOnlyUuidsAreSessions(t *testing.T) {
	for _, id := range []string{"", "package", "../../etc/x", "0-0", uuid.NewString() + "x", "A9B1C2D3-0000-4000-8000-000000000000"} {
		if _, err := create(registrytest.NewDir(t), id); err == nil {
			t.Errorf("create accepted %q, want an error", id)
		}
		if err := Remove(registrytest.NewDir(t), id); err == nil {
			t.Errorf("Remove accepted %q, want an error", id)
		}
		if Alive(registrytest.NewDir(t), id) {
			t.Errorf("Alive(%q) = true, want false", id)
		}
	}
}

func TestDirFollowsTheEnvironment(t *testing.T) {
	working, err := os.Getwd()
	must(t, err)
	runtimeDir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(runtimeDir, "file"), nil, 0o600))
	state := map[string]string{"linux": "/h/.local/state/pmcp", "darwin": "/h/Library/Application Support/pmcp"}[runtime.GOOS]
	cases := []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"PM_REGISTRY_DIR": "/r", "XDG_RUNTIME_DIR": "/x", "HOME": "/h"}, "/r"},
		{map[string]string{"PM_REGISTRY_DIR": "r"}, filepath.Join(working, "r")},
		{map[string]string{"XDG_RUNTIME_DIR": runtimeDir, "HOME": "/h"}, runtimeDir + "/pmcp/servers"},
		{map[string]string{"XDG_RUNTIME_DIR": runtimeDir + "/new", "HOME": "/h"}, runtimeDir + "/new/pmcp/servers"},
		{map[string]string{"XDG_RUNTIME_DIR": runtimeDir + "/file", "HOME": "/h"}, state + "/servers"},
		{map[string]string{"XDG_RUNTIME_DIR": "x", "HOME": "/h"}, state + "/servers"},
		{map[string]string{"HOME": "/h"}, state + "/servers"},
	}
	if runtime.GOOS == "linux" {
		cases = append(cases, struct {
			env  map[string]string
			want string
		}{map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/pmcp/servers"})
	}
	for _, c := range cases {
		if got := dirFor(func(key string) string { return c.env[key] }, ""); got != c.want {
			t.Errorf("Dir with %v = %s, want %s", c.env, got, c.want)
		}
	}
	if got := dirFor(func(string) string { return "" }, ""); !filepath.IsAbs(got) {
		t.Errorf("Dir without any environment = %s, want an absolute path", got)
	}
}

// TestDirFindsRuntimeDirWithoutVariable checks that a server whose client does not pass
// XDG_RUNTIME_DIR on finds the directory of the servers whose clients do, if that directory
// is closed to other users.
func TestDirFindsRuntimeDirWithoutVariable(t *testing.T) {
	env := map[string]string{"HOME": t.TempDir()}
	getenv := func(key string) string { return env[key] }
	state := filepath.Join(StateDir(getenv), "servers")
	users := t.TempDir()
	own := filepath.Join(users, strconv.Itoa(os.Geteuid()))
	want := func(dir, when string) {
		t.Helper()
		if got := dirFor(getenv, users); got != dir {
			t.Errorf("%s: %s, want %s", when, got, dir)
		}
	}
	want(state, "missing")
	must(t, os.WriteFile(own, nil, 0o700))
	must(t, os.Chmod(own, 0o700))
	want(state, "a file")
	must(t, os.Remove(own))
	must(t, os.Symlink(t.TempDir(), own))
	want(state, "a symbolic link")
	must(t, os.Remove(own))
	must(t, os.Mkdir(own, 0o700))
	must(t, os.Chmod(own, 0o700))
	want(filepath.Join(own, "pmcp", "servers"), "as it should be")
	env["XDG_RUNTIME_DIR"] = own
	want(filepath.Join(own, "pmcp", "servers"), "named by the variable")
	env["XDG_RUNTIME_DIR"] = t.TempDir()
	want(filepath.Join(env["XDG_RUNTIME_DIR"], "pmcp", "servers"), "the variable names another")
	env["XDG_RUNTIME_DIR"] = "relative"
	want(state, "the variable is wrong")
	env["XDG_RUNTIME_DIR"] = ""
	want(filepath.Join(own, "pmcp", "servers"), "the variable is empty")
	env["PM_REGISTRY_DIR"] = "/r"
	want("/r", "PM_REGISTRY_DIR is set")
	delete(env, "PM_REGISTRY_DIR")
	must(t, os.Chmod(own, 0o755))
	want(state, "open to others")
}

func TestIDsAreLowerCaseUUIDs(t *testing.T) {
	id := NewID("/a")
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 4 || parsed.Variant() != uuid.RFC4122 || parsed.String() != id || id == NewID("/a") || id[:4] != NewID("/a")[:4] || id[:4] == NewID("/b")[:4] {
		t.Errorf("NewID = %q: got error %v, want a random uuid", id, err)
	}
	must(t, checkID(id))
	for _, bad := range []string{"", "package", strings.ToUpper(id[:35]) + "A", "{" + id + "}", "urn:uuid:" + id, strings.ReplaceAll(id, "-", ""), id[:35], id + "0", "x" + id[1:], id[:35] + "\n", id[:35] + "é"} {
		if checkID(bad) == nil {
			t.Errorf("checkID(%q) = nil, want an error", bad)
		}
	}
}
