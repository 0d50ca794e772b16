package registrytest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// The states of registry.State.
const (
	Stale   = "stale"
	Foreign = "foreign"
)

const (
	tooLarge = 64<<10 + 1      // the size of a record that is too large
	tooOld   = 2 * time.Minute // the age of a lock that is too old to have its unfinished name
)

// A BadFile is one way in which a session's record can be bad.
type BadFile struct {
	Name    string
	State   string // the state of the entry that registry.List returns
	Problem string // a part of the entry's problem
	// Write writes the file of session id into dir, a registry. Write may skip the test.
	Write func(t *testing.T, dir, id string)
}

// BadFiles returns every way in which one session's record can be bad.
func BadFiles() []BadFile {
	content := func(format string, args ...any) func(t *testing.T, dir, id string) {
		return func(t *testing.T, dir, id string) { Write(t, path(dir, id, ".json"), fmt.Sprintf(format, args...)) }
	}
	return []BadFile{
		{"empty", Stale, "corrupt", content("")},
		{"half written", Stale, "corrupt", content(`{"v":1,"id":"`)},
		{"not JSON", Stale, "corrupt", content("hello")},
		{"JSON of another kind", Stale, "corrupt", content(`[1]`)},
		{"wrong types", Stale, "corrupt", func(t *testing.T, dir, id string) {
			Write(t, path(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q,"server":7}`, id))
		}},
		{"no version", Stale, "corrupt", content(`{}`)},
		{"another's id", Stale, "corrupt", content(`{"v":1,"id":%q}`, uuid.NewString())},
		{"huge", Stale, "larger", content("%s", strings.Repeat(" ", tooLarge))},
		{"newer version", Foreign, "newer", content(`{"v":2}`)},
		{"symbolic link", Foreign, "symbolic link", func(t *testing.T, dir, id string) {
			target := filepath.Join(filepath.Dir(dir), "target")
			Write(t, target, fmt.Sprintf(`{"v":1,"id":%q}`, id))
			check(t, os.MkdirAll(dir, 0o700))
			check(t, os.Symlink(target, path(dir, id, ".json")))
		}},
		{"directory", Foreign, "not a plain file", func(t *testing.T, dir, id string) {
			check(t, os.MkdirAll(path(dir, id, ".json"), 0o700))
		}},
		{"named pipe", Foreign, "not a plain file", func(t *testing.T, dir, id string) {
			check(t, os.MkdirAll(dir, 0o700))
			check(t, unix.Mkfifo(path(dir, id, ".json"), 0o600))
		}},
		{"another user's", Foreign, "belongs to user 12345", func(t *testing.T, dir, id string) {
			Write(t, path(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q}`, id))
			if err := os.Chown(path(dir, id, ".json"), 12345, -1); err != nil {
				t.Skip("giving a file away takes root")
			}
		}},
		{"lock without record", Stale, "no record", func(t *testing.T, dir, id string) { Write(t, path(dir, id, ".lock"), "") }},
		{"list without record", Stale, "no record", func(t *testing.T, dir, id string) { Write(t, path(dir, id, ".procs"), "boot") }},
		{"old unfinished lock", Stale, "no record", func(t *testing.T, dir, id string) {
			unfinished := path(dir, "."+id, ".lock.tmp")
			Write(t, unfinished, "")
			check(t, os.Chtimes(unfinished, time.Time{}, time.Now().Add(-tooOld)))
		}},
		{"a project's files", Foreign, "not a file of pmcp", func(t *testing.T, dir, _ string) {
			Write(t, filepath.Join(dir, "package.json"), "{}")
		}},
	}
}

func path(dir, id, suffix string) string { return filepath.Join(dir, id+suffix) }

// Forge writes the files of a dead server that name the victim as the server, the guardian and a
// process of the session. It returns the session's id.
func Forge(t *testing.T, dir, boot string, victim proctab.ID) (id string) {
	t.Helper()
	id = uuid.NewString()
	p := fmt.Sprintf(`{"pid":%d,"start":%d}`, victim.PID, victim.Start)
	Write(t, path(dir, id, ".lock"), "")
	Write(t, path(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q,"boot_id":%q,"server":%s,"guardian":%s}`, id, boot, p, p))
	Write(t, path(dir, id, ".procs"), fmt.Sprintf("boot %s\n%v\n", boot, victim))
	return id
}

// ForgeAll writes the files of six dead sessions, which name an innocent process in every way but the
// right one.
func ForgeAll(t *testing.T, dir string, innocent proctab.ID) {
	t.Helper()
	wrong := proctab.ID{PID: innocent.PID, Start: innocent.Start + 1}
	Forge(t, dir, proctab.BootID(), wrong)
	Forge(t, dir, "another boot", innocent)
	Forge(t, dir, "another boot", wrong)
	// The right boot in the record, and none or another before the list.
	id := Forge(t, dir, proctab.BootID(), wrong)
	Write(t, path(dir, id, ".procs"), fmt.Sprintf("%v\n%v\n", innocent, innocent))
	id = Forge(t, dir, proctab.BootID(), wrong)
	Write(t, path(dir, id, ".procs"), fmt.Sprintf("boot another\n%v\n", innocent))
	id = Forge(t, dir, proctab.BootID(), wrong)
	Write(t, path(dir, id, ".procs"), fmt.Sprintf("boot %s\n%d\n%d 0\n%v x\n%v", proctab.BootID(), innocent.PID, innocent.PID, innocent, innocent))
}
