package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// helperService starts a program that listens on a port, in a session of its own, with its output
// in a file. Once that program listens, helperService exits. Its arguments are FILE and CODE.
func helperService(args []string) int {
	log, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Println(err)
		return 9
	}
	before, _ := log.Seek(0, io.SeekEnd)
	cmd := helperCommand("listen", &syscall.SysProcAttr{Setsid: true}, "tcp", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = log, log
	if len(args) > 2 { // listen once that file exists, long after the first process
		cmd.Args = append([]string{"sh", "-c", `until [ -e "$0" ]; do sleep 0.01; done; exec "$@"`, args[2]}, cmd.Args...)
		if cmd.Path, err = exec.LookPath("sh"); err != nil {
			fmt.Println(err)
			return 9
		}
	}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 9
	}
	for len(args) <= 2 {
		if text, _ := os.ReadFile(args[0]); int64(len(text)) > before && strings.Contains(string(text[before:]), "listening ") {
			break
		}
		<-time.After(time.Millisecond)
	}
	fmt.Println("daemon", cmd.Process.Pid)
	code, _ := strconv.Atoi(args[1])
	return code
}

// service returns the Spec of a service that puts itself into the background.
func service(t *testing.T, code int) Spec {
	spec := helper("a", "service", filepath.Join(t.TempDir(), "log"), strconv.Itoa(code))
	spec.Service, spec.Ready = true, &Ready{Port: new(int)}
	return spec
}

// daemon returns the pid that a service has printed.
func (j *memJournal) daemon(t *testing.T, run int64) int {
	t.Helper()
	line, err := j.awaitLine(testContext(t), run, func(l string) bool { return strings.HasPrefix(l, "daemon ") })
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimPrefix(line, "daemon "))
	return pid
}

// TestServiceGoesOnInBackground checks that a service whose first process has ended goes on with its
// tree: it becomes ready, its log is read, a restart replaces it and a stop ends it.
func TestServiceGoesOnInBackground(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := service(t, 0)
	st := start(t, m, spec)
	pid := j.daemon(t, st.RunID)
	st = await(t, m, "a", "ready in the background", func(st Status) bool {
		return !st.State.Live() || st.Background && st.Ready != nil && *st.Ready
	})
	port := j.port(testContext(t), st.RunID) // a line of the log file
	if st.State != Running || st.PID != pid || !slices.Equal(st.Ports, []int{port}) || len(st.Survivors) > 0 {
		t.Fatalf("got %s, pid %d, ports %v, survivors %v; want running, %d, %d and none", st.State, st.PID, st.Ports, st.Survivors, pid, port)
	}
	if st, err := m.WatchStart(testContext(t), "a", st.RunID); err != nil || st.State != Running {
		t.Errorf("WatchStart = %s, %v; want running", st.State, err)
	}
	check := func(pid int) {
		t.Helper()
		if p, err := proctab.Read(pid); err == nil && !p.Zombie {
			t.Errorf("pid %d lives, want none", pid)
		}
	}
	st, err := restart(testContext(t), m, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	check(pid)
	pid = j.daemon(t, st.RunID)
	st = await(t, m, "a", "ready in the background", func(st Status) bool {
		return !st.State.Live() || st.Background && st.Ready != nil && *st.Ready
	})
	if port := j.port(testContext(t), st.RunID); !slices.Equal(st.Ports, []int{port}) { // the next line of the same file
		t.Errorf("got port %d in the log after a restart, want %v", port, st.Ports)
	}
	st, err = m.Stop(testContext(t), "a", StopOptions{})
	if err != nil || st.State != Stopped || st.Exit == nil || st.Exit.By != ByUser || st.Background {
		t.Errorf("Stop = %s, %v, background %v, %v; want stopped by the user", st.State, st.Exit, st.Background, err)
	}
	check(pid)
}

// TestServiceEndsWithItsTree checks that a run in the background ends when its daemon does, and that
// the end is no success if no subreaper has learned of it.
func TestServiceEndsWithItsTree(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, service(t, 0))
	pid := j.daemon(t, st.RunID)
	await(t, m, "a", "in the background", func(st Status) bool { return !st.State.Live() || st.Background })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if st = await(t, m, "a", "ended", func(st Status) bool { return !st.State.Live() }); st.State != Crashed || st.Exit.Code != -1 || st.Exit.By != ByOutside || len(st.Survivors) > 0 {
		t.Errorf("got %s, %+v with %v, want a crash with no survivor", st.State, st.Exit, st.Survivors)
	}
}

// TestServiceAwaitsItsListener checks that a service whose tree has not listened yet may listen as late
// as it likes, that it ends as its first process did if its tree ends instead, and that a stop before
// that is the user's.
func TestServiceAwaitsItsListener(t *testing.T) {
	for _, then := range []string{"listens", "ends", "stopped"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			m, j := newTestManager(t, Options{})
			asked := make(chan struct{}, 100)
			m.deps.listened = func(run int64) bool {
				select {
				case asked <- struct{}{}:
				default:
				}
				return m.meter.hasListened(run)
			}
			spec, listen := service(t, 0), filepath.Join(t.TempDir(), "listen")
			spec.Args = append(spec.Args, listen)
			if then == "listens" {
				spec.Restart = RestartAlways
			}
			st := start(t, m, spec)
			pid := j.daemon(t, st.RunID)
			for range 3 { // lookups that found no listener after the end of the first process
				<-asked
			}
			switch then {
			case "stopped":
				st, err := m.Stop(testContext(t), "a", StopOptions{})
				if err != nil || st.State != Stopped || st.Exit == nil || st.Exit.By != ByUser || len(st.Survivors) > 0 {
					t.Errorf("Stop = %s, %v, %v with %v; want stopped by the user with none left", st.State, st.Exit, err, st.Survivors)
				}
			case "ends":
				await(t, m, "a", "not ready after its first process", func(st Status) bool { return strings.Contains(st.NotReady, "its first process has exited") })
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if st = await(t, m, "a", "ended", func(st Status) bool { return !st.State.Live() }); st.State != Exited || st.Exit.Code != 0 {
					t.Errorf("got %s, %+v, want exited with code 0", st.State, st.Exit)
				}
			case "listens":
				if err := os.WriteFile(listen, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if st = await(t, m, "a", "in the background", func(st Status) bool { return !st.State.Live() || st.Background }); st.Run != 1 || st.State != Running {
					t.Errorf("got run %d %s, want run 1 running", st.Run, st.State)
				}
			}
		})
	}
}

// TestOnlyServicesGoOnInBackground checks what ends with its first process: a program that no service
// was asked of, one that fails, and one that has listened and does so no more.
func TestOnlyServicesGoOnInBackground(t *testing.T) {
	for name, c := range map[string]struct {
		spec  func(*testing.T) Spec
		state State
	}{
		"no service": {func(t *testing.T) Spec { s := service(t, 0); s.Service = false; return s }, Exited},
		"failed":     {func(t *testing.T) Spec { return service(t, 3) }, Crashed},
		"silent": {func(*testing.T) Spec {
			s := helper("a", "daemon")
			s.Service = true
			return s
		}, Exited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := newTestManager(t, Options{})
			m.deps.listened, m.deps.handOver = func(int64) bool { return true }, time.Millisecond
			start(t, m, c.spec(t))
			st := await(t, m, "a", "ended with a survivor", func(st Status) bool { return !st.State.Live() })
			if st.State != c.state || st.Background {
				t.Errorf("got %s, background %v, want %s", st.State, st.Background, c.state)
			}
			if st, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil || len(st.Survivors) > 0 {
				t.Errorf("Stop = %v, %v; want none left", st.Survivors, err)
			}
		})
	}
}

// TestLogFilesAreReadWithCare checks which files of a tree are read, and from where.
func TestLogFilesAreReadWithCare(t *testing.T) {
	if _, err := os.Stat("/proc/self/fdinfo"); err != nil {
		t.Skip("no /proc")
	}
	old := func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add := func(t *testing.T, f *os.File, text string) {
		t.Helper()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		flags   int
		write   func(t *testing.T, f *os.File, read func())
		want    string // of the output; "…" stands for the note on what is not read
	}{
		"new": {nil, os.O_APPEND, func(t *testing.T, f *os.File, read func()) { add(t, f, "a\nb"); read(); add(t, f, "c\n"); read() }, "a\nbc\n"},
		"truncated": {nil, os.O_APPEND, func(t *testing.T, f *os.File, read func()) {
			add(t, f, "long\n")
			read()
			_ = f.Truncate(0)
			add(t, f, "b\n")
			read()
		}, "long\nb\n"},
		"truncated under a writer that does not append": {nil, os.O_TRUNC, func(t *testing.T, f *os.File, read func()) {
			add(t, f, strings.Repeat("x", 99_999)+"\n")
			if _, err := f.Seek(1<<34, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			add(t, f, "long ago\n")
			read()
			_ = f.Truncate(0)
			read()
			add(t, f, "b\n")
			read()
		}, "…long ago\nb\n"},
		"much at the end": {nil, os.O_APPEND, func(t *testing.T, f *os.File, read func()) {
			read()
			add(t, f, strings.Repeat("x\n", 3<<19)) // 3 MiB, read once only
			read()
		}, strings.Repeat("x\n", 3<<19)},
		"rotated": {nil, os.O_APPEND, func(t *testing.T, f *os.File, read func()) {
			add(t, f, "a\n")
			read()
			_ = os.Remove(f.Name())
			add(t, f, "b\n")
			read()
		}, "a\nb\n"},
		"overwritten": {old, os.O_TRUNC, func(t *testing.T, f *os.File, read func()) { add(t, f, "a\n"); read() }, "a\n"},
		"link": {func(t *testing.T, path string) {
			old(t, path+".real")
			if err := os.Symlink(path+".real", path); err != nil {
				t.Fatal(err)
			}
		}, os.O_TRUNC, func(t *testing.T, f *os.File, read func()) { add(t, f, "a\n"); read() }, "a\n"},
		"1 GB": {func(t *testing.T, path string) {
			old(t, path)
			if err := os.Truncate(path, 1<<30); err != nil {
				t.Fatal(err)
			}
		}, os.O_APPEND, func(t *testing.T, f *os.File, read func()) { read(); add(t, f, "a\n"); read() }, "…a\n"},
		"FIFO": {func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, os.O_RDWR, func(t *testing.T, f *os.File, read func()) { add(t, f, "a\n"); read() }, ""},
		"another user's": {func(t *testing.T, path string) {
			old(t, path)
			if err := os.Chown(path, 12345, -1); err != nil {
				t.Skip("not root")
			}
		}, 0, func(t *testing.T, f *os.File, read func()) { add(t, f, "a\n"); read() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "log")
			if c.prepare != nil {
				c.prepare(t, path)
			}
			began := time.Now()
			if c.prepare != nil {
				began = began.Add(time.Hour) // what there is now is older than the run
			}
			if c.flags&os.O_RDWR == 0 {
				c.flags |= os.O_WRONLY
			}
			f, err := os.OpenFile(path, os.O_CREATE|c.flags, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			j := newMemJournal()
			run, _, _ := j.NewRun("", "a")
			files := newLogFiles(&Run{id: run, background: newBackground(began), runDeps: runDeps{journal: j, logEnds: new(logEnds)}})
			files.looked = time.Now().Add(time.Hour)
			c.write(t, f, func() {
				files.add(os.Getpid(), int(f.Fd()), Stdout)
				files.read(0, nil)
			})
			files.close()
			got := j.text(run, Stdout)
			if note, rest, found := strings.Cut(got, " on\n"); found && strings.HasPrefix(note, "… ") {
				got = "…" + rest
			}
			if got != c.want {
				t.Errorf("got %.200q, want %q", got, c.want)
			}
		})
	}
}
