package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

var bombs = flag.Int("bomb.n", 5, "fork bombs in TestForkBombIsKilled; 15 cover each kind with each fault")

const (
	// bombLimit is the limit of processes and threads in the cgroup of a fork bomb and its
	// session.
	bombLimit = 100
	// bombLife is how long a fork bomb lives, even if the test fails to kill it.
	bombLife = 90 * time.Second
)

// bombProgram is a fork bomb in C. Its arguments are KIND and END, the time of its end in
// seconds since 1970. It ignores the signals that can be ignored, and its later generations
// clear their environment.
//
//	fork     each process forks for ever
//	daemon   each process starts daemons, by a double fork and setsid
//	chain    eight processes that fork every few milliseconds and exit, or as many as a third argument says
const bombProgram = `
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
	long end = atol(argv[2]);
	int chains = argc > 3 ? atoi(argv[3]) : 8;
	pid_t pid;
	signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGINT, SIG_IGN);
	write(1, "lit\n", 4);
	if (!strcmp(argv[1], "fork"))
		while (time(0) < end)
			if (fork() < 0)
				usleep(1000);
	if (!strcmp(argv[1], "chain")) {
		while (--chains > 0 && fork() > 0)
			;
		while (time(0) < end) {
			for (char **e = environ; *e; e++)
				memset(*e, 0, strlen(*e));
			usleep(1000 + rand() % 3000);
			if ((pid = fork()) > 0)
				return 0;
			if (pid == 0)
				setsid();
		}
	}
	while (time(0) < end) {
		if ((pid = fork()) > 0)
			waitpid(pid, 0, 0);
		else if (pid < 0)
			usleep(1000);
		else if (setsid(), fork() != 0)
			_exit(0);
		else
			for (char **e = environ; *e; e++)
				memset(*e, 0, strlen(*e));
	}
	return 0;
}
`

// buildBomb compiles bombProgram.
func buildBomb(t *testing.T) (path string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	path = filepath.Join(t.TempDir(), "bomb")
	check(t, os.WriteFile(path+".c", []byte(bombProgram), 0o600))
	if out, err := exec.Command(cc, "-w", "-O1", "-o", path, path+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// startBomb returns the arguments of start_process for a fork bomb.
func startBomb(bomb, kind string) args {
	return args{"name": "bomb", "command": bomb, "args": []string{kind, fmt.Sprint(time.Now().Add(bombLife).Unix())}, "timeout_ms": 0}
}

// bombFaults returns the ways to end a session with a fork bomb, or the bomb itself.
func bombFaults() []chaosFault {
	stop := func(v *victim) error {
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "stop", "method": "tools/call",
			"params": args{"name": "stop_process", "arguments": args{"process": "bomb", "timeout_ms": 200}}})
		if err == nil {
			_, err = v.in.Write(append(line, '\n'))
		}
		return err
	}
	return []chaosFault{
		{name: "SIGKILL server", strike: killServer},
		{name: "SIGKILL guardian", strike: func(v *victim) error { return v.signal(syscall.SIGKILL) }},
		{name: "stdin closed", strike: func(v *victim) error { return v.in.Close() }},
		{name: "stop_process", strike: stop},
		{name: "SIGKILL both, then the doctor", strike: func(v *victim) error {
			server, err := v.awaitServer()
			err = errors.Join(err, v.signal(syscall.SIGKILL), syscall.Kill(server, syscall.SIGKILL))
			// Until pmcp's guardian and server are dead they hold their lock, and pmcp
			// --doctor finds a live server.
			poll(endsWithin, func() bool {
				alive := v.arena.group.members()
				return !slices.Contains(alive, v.launched) && !slices.Contains(alive, server)
			})
			return err
		}},
	}
}

// TestForkBombIsKilled starts fork bombs in sessions, ends the session or the bomb in each
// way, and checks that no process of the bomb is left. Each session is in a cgroup with a
// limit of processes, so that the bomb cannot exhaust the machine.
func TestForkBombIsKilled(t *testing.T) {
	proctest.Long(t, "bombs")
	binary(t)
	if newLimitedCgroup(t, bombLimit) == nil {
		t.Skip("cannot create a cgroup with a limit of processes")
	}
	bomb := buildBomb(t)
	kinds, faults := []string{"fork", "daemon", "chain"}, bombFaults()
	for i := range *bombs {
		kind, fault := kinds[i%len(kinds)], faults[i%len(faults)]
		t.Run(fmt.Sprintf("%d %s, %s", i, kind, fault.name), func(t *testing.T) {
			strikeBomb(t, bomb, kind, fault)
		})
	}
}

func strikeBomb(t *testing.T, bomb, kind string, fault chaosFault) {
	a := newArena(t)
	a.group = newLimitedCgroup(t, bombLimit)
	a.set("PM_STOP_TIMEOUT", "200")
	v, err := a.launchVictim(false)
	check(t, err)
	t.Cleanup(func() {
		a.group.kill()
		_ = v.close() // ignore the error: most faults have ended the session
	})
	server, err := v.awaitServer()
	check(t, err)
	check(t, errors.Join(v.tell(nil), v.await(1)))
	check(t, errors.Join(v.write("", []args{startBomb(bomb, kind)}), v.await(1)))
	if !poll(answersWithin, func() bool { return kind == "chain" || len(a.group.members()) > bombLimit/2 }) {
		t.Fatalf("got the processes %v, want more than %d: the bomb does not grow", a.group.members(), bombLimit/2)
	}
	struck := time.Now()
	check(t, fault.strike(v))
	var keep []int
	switch {
	case strings.HasPrefix(fault.name, "SIGKILL both"):
		text, code, err := a.doctor("--cleanup-stale-records")
		if err != nil || code != 0 {
			t.Errorf("the doctor exited with code %d, %v, want 0: …%s", code, err, text[max(0, len(text)-1000):])
		}
	case fault.name == "stop_process":
		check(t, v.await(1))
		keep = []int{v.launched, server}
	}
	left := func() (pids []int) {
		for _, pid := range a.group.members() {
			if !slices.Contains(keep, pid) {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	if !poll(endsWithin, func() bool { return len(left()) == 0 }) {
		t.Errorf("got %d processes of the bomb left, want none", len(left()))
	}
	if took := time.Since(struck); took > cleansUpWithin {
		t.Logf("gone after %v", took.Round(time.Millisecond))
	}
	if len(keep) > 0 {
		check(t, v.in.Close())
		if !poll(endsWithin, func() bool { return len(a.group.members()) == 0 }) {
			t.Errorf("got the processes %v of the session left, want none", a.group.members())
		}
	}
}
