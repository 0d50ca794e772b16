package logstore

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pmcp/logstore/db"
)

// The users of TestOpenRefusesUnsafePlaces: the owner of the log and its attacker.
const victim, attacker = 54321, 54322

// helperOpen opens the database in its argument, stores a line and prints the state of the storage.
func helperOpen() int {
	if len(os.Args) > 2 {
		syscall.Umask(0o777)
	}
	s, err := Open(context.Background(), Options{Path: os.Args[1]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	put(s, startRun(s, "/p", "web"), 1, 1)
	err = s.Flush(context.Background())
	st := s.Status()
	if s.file != nil && err == nil {
		err = s.file.EnsureReserve()
	}
	if err == nil {
		err = s.Close()
	}
	fmt.Println(st.State, st.Reason, err)
	return 0
}

// users is a directory with files of two users: the owner of the log and an attacker.
type users struct {
	t    *testing.T
	dir  string // owned by root, searchable by all
	exe  string // the test binary, executable by all
	home string // owned by the victim
}

func newUsers(t *testing.T) *users {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as other users")
	}
	u := &users{t: t, dir: t.TempDir()}
	checkError(t, os.Chmod(filepath.Dir(u.dir), 0o755))
	checkError(t, os.Chmod(u.dir, 0o755))
	binary, err := os.ReadFile(os.Args[0])
	checkError(t, err)
	u.exe = filepath.Join(u.dir, "logstore.test")
	checkError(t, os.WriteFile(u.exe, binary, 0o755))
	checkError(t, os.Chmod(u.exe, 0o755))
	u.home = u.mkdir("home", victim, 0o700)
	return u
}

// mkdir creates a directory of a user.
func (u *users) mkdir(name string, uid int, mode fs.FileMode) string {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	checkError(u.t, os.Mkdir(path, 0o700))
	checkError(u.t, os.Chown(path, uid, 99))
	checkError(u.t, os.Chmod(path, mode))
	return path
}

// write creates a file of a user.
func (u *users) write(path string, uid int, mode fs.FileMode, text string) string {
	u.t.Helper()
	checkError(u.t, os.WriteFile(path, []byte(text), 0o600))
	checkError(u.t, os.Chown(path, uid, 99))
	checkError(u.t, os.Chmod(path, mode))
	return path
}

// link creates a symbolic link of a user.
func (u *users) link(target, path string, uid int) string {
	u.t.Helper()
	checkError(u.t, os.Symlink(target, path))
	checkError(u.t, os.Lchown(path, uid, 99))
	return path
}

// open runs helperOpen as a user and returns the printed state of the storage.
func (u *users) open(uid uint32, path string, args ...string) string {
	u.t.Helper()
	cmd := exec.Command(u.exe, append([]string{path}, args...)...)
	cmd.Env = []string{helperEnv + "=open"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 99}}
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		u.t.Fatalf("helper: got %v, want success: %s", err, &failure)
	}
	return strings.TrimSpace(string(out))
}

// TestOpenRefusesUnsafePlaces opens databases where another user can replace, or has replaced, the
// file or its companion files, and checks that no file there is used or changed, and that the
// reported reason names the fault.
func TestOpenRefusesUnsafePlaces(t *testing.T) {
	t.Parallel()
	u := newUsers(t)
	const precious = "what the victim would miss"
	for _, c := range []struct {
		name  string
		place func(dir string) string // returns the path of the database
		uid   int                     // the owner of the directory
		mode  fs.FileMode
		want  string
	}{
		{"strangers-directory", nil, attacker, 0o777, "belongs to user 54322, not to 54321"},
		{"sticky-strangers-directory", nil, attacker, fs.ModeSticky | 0o777, "belongs to user 54322, not to 54321"},
		{"open-directory", nil, victim, 0o777, "others may write to"},
		{"group-directory", nil, victim, 0o770, "others may write to"},
		{"strangers-database", func(dir string) string {
			return u.write(filepath.Join(dir, "pmcp.db"), attacker, 0o666, "")
		}, 0, fs.ModeSticky | 0o777, "pmcp.db belongs to user 54322, not to 54321"},
		{"strangers-wal", func(dir string) string {
			u.write(filepath.Join(dir, "pmcp.db-wal"), attacker, 0o666, "")
			return filepath.Join(dir, "pmcp.db")
		}, 0, fs.ModeSticky | 0o777, "pmcp.db-wal belongs to user 54322"},
		{"strangers-lock", func(dir string) string {
			u.write(filepath.Join(dir, "pmcp.db.lock"), attacker, 0o666, "")
			return filepath.Join(dir, "pmcp.db")
		}, 0, fs.ModeSticky | 0o777, "pmcp.db.lock belongs to user 54322"},
		{"strangers-link-to-the-database", func(dir string) string {
			return u.link(filepath.Join(u.home, "new.db"), filepath.Join(dir, "pmcp.db"), attacker)
		}, 0, 0o755, "pmcp.db belongs to user 54322"},
		{"own-link-in-an-open-directory", func(dir string) string {
			return u.link(filepath.Join(u.home, "new.db"), filepath.Join(dir, "pmcp.db"), victim)
		}, victim, 0o777, "others may write to"},
		{"strangers-link-to-the-directory", func(dir string) string {
			return filepath.Join(u.link(u.home, filepath.Join(dir, "state"), attacker), "new.db")
		}, 0, 0o755, "state belongs to user 54322"},
		{"strangers-reserve", func(dir string) string {
			u.link(filepath.Join(u.home, "precious"), filepath.Join(dir, "pmcp.db.reserve"), attacker)
			return filepath.Join(dir, "pmcp.db")
		}, victim, 0o755, "pmcp.db.reserve belongs to user 54322"},
		{"reserve-that-is-a-link", func(dir string) string {
			u.link(filepath.Join(u.home, "precious"), filepath.Join(dir, "pmcp.db.reserve"), victim)
			return filepath.Join(dir, "pmcp.db")
		}, victim, 0o755, "pmcp.db.reserve is a symbolic link or not a file"},
		{"maint-that-is-a-link", func(dir string) string {
			u.link(filepath.Join(u.home, "precious"), filepath.Join(dir, "pmcp.db.maint"), victim)
			return filepath.Join(dir, "pmcp.db")
		}, victim, 0o755, "pmcp.db.maint is a symbolic link or not a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept := u.write(filepath.Join(u.home, "precious"), victim, 0o600, precious)
			dir := u.mkdir(c.name, c.uid, c.mode)
			path := filepath.Join(dir, "pmcp.db")
			if c.place != nil {
				path = c.place(dir)
			}
			before, err := os.ReadDir(dir)
			checkError(t, err)
			got := u.open(victim, path)
			if !strings.HasPrefix(got, StateMemory+" ") || !strings.Contains(got, c.want) || !strings.HasSuffix(got, "; the log is kept in memory <nil>") {
				t.Errorf("got %q, want %q", got, c.want)
			}
			after, err := os.ReadDir(dir)
			if err != nil || len(after) != len(before) {
				t.Errorf("directory: got %v, %v; want %v", after, err, before)
			}
			if data, err := os.ReadFile(kept); err != nil || string(data) != precious {
				t.Errorf("file of the victim: got %d bytes, %v; want it unchanged", len(data), err)
			}
			if _, err := os.Lstat(filepath.Join(u.home, "new.db")); err == nil {
				t.Error("got a database where the link leads, want none")
			}
		})
	}
}

// TestOpenAcceptsSafePlaces checks that Open accepts databases behind the user's own links and in a
// directory like /tmp.
func TestOpenAcceptsSafePlaces(t *testing.T) {
	t.Parallel()
	u := newUsers(t)
	other := u.mkdir("data", victim, 0o755)
	sticky := u.mkdir("tmp", 0, fs.ModeSticky|0o777)
	for name, path := range map[string]string{
		"in /tmp":                filepath.Join(sticky, "pmcp.db"),
		"in a directory of /tmp": filepath.Join(sticky, "pmcp-54321", "pmcp.db"),
		"through a link":         u.link(filepath.Join(other, "a.db"), filepath.Join(u.home, "pmcp.db"), victim),
		"through a directory":    filepath.Join(u.link(other, filepath.Join(u.home, "state"), victim), "b.db"),
	} {
		for range 2 {
			if got, want := u.open(victim, path), StateOK+"  <nil>"; got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	}
}

// TestOpenIgnoresUmask checks that the files of a first start are private to their user whatever
// the umask is, and that Open repairs lock files that an earlier version created without
// permissions.
func TestOpenIgnoresUmask(t *testing.T) {
	u := newUsers(t)
	path := filepath.Join(u.home, "pmcp.db")
	for _, umask := range [][]string{{"777"}, nil} {
		if got, want := u.open(victim, path, umask...), StateOK+"  <nil>"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, suffix := range []string{"", db.LockSuffix, db.MaintSuffix} {
			info, err := os.Lstat(path + suffix)
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("pmcp.db%s: got %v, %v; want mode 0600", suffix, info, err)
			}
			if suffix != "" {
				checkError(t, os.Chmod(path+suffix, 0))
			}
		}
	}
}
