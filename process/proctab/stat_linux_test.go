package proctab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "leaderless" {
		leaderless()
	}
	if len(os.Args) > 1 && os.Args[1] == "lastfile" {
		os.Exit(lastFile())
	}
	os.Exit(m.Run())
}

// lastFile reads rows while no more file descriptor is allowed. It returns 0 if that fails as it
// should; otherwise it prints what went wrong.
func lastFile() int {
	list, err := entries() // this first call opens the descriptors that the runtime keeps
	if err != nil || len(list) == 0 {
		fmt.Println("with descriptors:", len(list), err)
		return 1
	}
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		fmt.Println(err)
		return 1
	}
	limit.Cur = uint64(fd)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		fmt.Println(err)
		return 1
	}
	for _, read := range []func() ([]Proc, error){All, func() ([]Proc, error) { return rows(list) }, NewScanner(os.Getpid()).Scan} {
		if table, err := read(); !errors.Is(err, unix.EMFILE) || table != nil {
			fmt.Println("without:", len(table), err)
			return 1
		}
	}
	return 0
}

// TestAllIsCompleteOrFails checks that All fails if it cannot read a process, and returns no table
// that lacks processes.
func TestAllIsCompleteOrFails(t *testing.T) {
	if out, err := exec.Command(os.Args[0], "lastfile").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// leaderless ends the first thread of this process, which keeps running in its other threads.
func leaderless() {
	for range 100 {
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() {
				_, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0)
			}
			<-time.After(time.Hour)
		}()
	}
	go func() {
		for !strings.Contains(firstThread(), ") Z ") {
			runtime.Gosched()
		}
		fmt.Println("up")
	}()
	<-time.After(time.Hour)
}

func firstThread() string {
	stat, _ := os.ReadFile("/proc/self/stat")
	return string(stat)
}

// TestProcessWithoutFirstThreadIsNoZombie checks that a process whose first thread has ended does
// not count as a zombie, although /proc shows it in that state.
func TestProcessWithoutFirstThreadIsNoZombie(t *testing.T) {
	cmd := exec.Command(os.Args[0], "leaderless")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("the child printed %q, %v, want up", line, err)
	}
	p, err := Read(cmd.Process.Pid)
	if err != nil || p.Zombie {
		t.Fatalf("Read = %+v, %v; want a process that is not a zombie", p, err)
	}
	if err := Signal(p.ID, syscall.SIGKILL); err != nil {
		t.Errorf("Signal = %v, want nil", err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != syscall.SIGKILL {
		t.Errorf("ended by %v, want %v", got, syscall.SIGKILL)
	}
}

// TestNewestChangesWithNewProcess checks that Newest changes once a process has been created.
func TestNewestChangesWithNewProcess(t *testing.T) {
	before := Newest()
	startCat(t)
	if after := Newest(); before <= 0 || after <= 0 || after == before {
		t.Errorf("Newest was %d before a process was started and is %d after, want another pid", before, after)
	}
}

func TestParseStatAcceptsHostileName(t *testing.T) {
	stat := "7 (a) R 1 (b) Z 3 4 5 0 -1 4194560 1 0 0 0 11 31 0 0 20 0 1 0 987654 4096 3\n"
	p, err := parseStat(7, []byte(stat))
	if err != nil {
		t.Fatal(err)
	}
	want := Proc{ID: ID{PID: 7, Start: 987654}, PPID: 3, PGID: 4, SID: 5, Zombie: true, Comm: "a) R 1 (b", CPU: 42, Memory: 3 * uint64(os.Getpagesize())}
	if p != want {
		t.Errorf("parseStat = %+v, want %+v", p, want)
	}
	lines := strings.Replace(stat, "a) R 1 (b", "x\nhint: \x1b\xff", 1)
	if p, err = parseStat(7, []byte(lines)); err != nil || p.Comm != "x hint:  ?" {
		t.Errorf("parseStat = %+v, %v, want Comm %q", p, err, "x hint:  ?")
	}
	for _, bad := range []string{"", "7 (x", "7 (x) S 1 2"} {
		if _, err := parseStat(7, []byte(bad)); err == nil {
			t.Errorf("parseStat(%q) succeeded, want an error", bad)
		}
	}
}

func TestKilledSeesPendingSIGKILL(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tSigPnd: 100\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n": false,
		"SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n":                                                true,
		"SigPnd:\t0000000000000000\nShdPnd:\t0000000000004102\n":                                                true,
		"SigPnd:\t0000000000004000\nShdPnd:\t000000000000000":                                                   false, // SIGTERM
	} {
		if got := inSet([]byte(status), "SigPnd", unix.SIGKILL) || inSet([]byte(status), "ShdPnd", unix.SIGKILL); got != want {
			t.Errorf("inSet = %v, want %v for\n%s", got, want, status)
		}
	}
	if Killed(os.Getpid()) || Killed(-1) {
		t.Error("Killed = true for this process or for none, want false")
	}
}
