package guard

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
	"pmcp/process/proctest"
)

// TestMain lets the test binary play every process of a session: guardian, server and others.
// Without a known argument it runs the tests, which play the client.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Verb:
			os.Exit(standIn(os.Args[2], os.Args[3:]))
		case HoldVerb:
			os.Exit(holdMain(os.Args[2], os.Args[3:]))
		case DetachVerb:
			os.Exit(detachMain())
		case DaemonVerb:
			os.Exit(daemonMain())
		case "guardian":
			os.Exit(guardianMain(os.Args[2:]))
		case "wrapper":
			os.Exit(wrapperMain(os.Args[2:]))
		case "ignorant":
			os.Exit(ignorantMain(os.Args[2:]))
		case "strays":
			os.Exit(straysMain())
		case "launcher":
			_, _ = io.ReadAll(os.NewFile(3, "go")) // wait until the test has closed its end of this process's stdin
			fmt.Println(launcher() == os.Getppid())
			os.Exit(0)
		case "foreground":
			os.Exit(foregroundMain())
		case "unkillable":
			os.Exit(unkillableMain())
		}
	}
	proctest.Interruptible()
	goleak.VerifyTestMain(m)
}

// guardianMain does what pmcp's main does in the guardian. Its arguments are PATIENCE GIVEUP ID
// ARGS...; the path of the record, which is also the lock, is in TEST_RECORD.
func guardianMain(args []string) int {
	if err := Seal(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	limits := defaultTiming
	limits.parentPoll = time.Hour // the kernel reports the parent's end
	if slices.Contains(args[3:], "polling") {
		limits.parentPoll = 20 * time.Millisecond
		limits.open = func(int) (*proctab.Handle, error) { return nil, unix.ENOSYS }
	}
	limits.killAfter, _ = time.ParseDuration(args[0])
	limits.cleanLimit, _ = time.ParseDuration(args[1])
	record := os.Getenv("TEST_RECORD")
	lock, err := os.Create(record)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if slices.Contains(args[3:], "lockless") {
		lock = nil
	}
	verb := Verb
	if slices.Contains(args[3:], "hold") {
		verb = HoldVerb
	}
	return run(Config{
		ID:     args[2],
		Verb:   verb,
		Args:   args[3:],
		Lock:   lock,
		OnGone: func() error { return removeIfThere(record) },
		Logf:   func(format string, args ...any) { fmt.Fprintf(os.Stderr, "guardian: "+format+"\n", args...) },
	}, limits)
}

// holdMain is the guardian of a command, a shell script: the last of its arguments.
func holdMain(id string, args []string) int {
	if err := Seal(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	life, err := Inherit()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	limits := defaultTiming
	limits.killAfter, limits.cleanLimit = testTimeout, 2*testTimeout
	shell := os.Getenv("SHELL_COPY")
	return hold(Config{ID: id, Grace: testTimeout}, limits, life, shell, []string{shell, "-c", args[len(args)-1]})
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// wrapperMain is a process between the client and pmcp, like npx: it runs its arguments with its
// own stdio and waits for their end.
func wrapperMain(args []string) int {
	self, err := os.Executable()
	if err != nil {
		return 2
	}
	p, err := os.StartProcess(self, append([]string{self}, args...), &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 2
	}
	state, err := p.Wait()
	if err != nil {
		return 2
	}
	return state.ExitCode()
}

// ignorantMain executes its arguments with signals ignored, as nohup and some clients
// do.
func ignorantMain(args []string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGCHLD)
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, append([]string{self}, args...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 2
}

// A standInServer plays pmcp's server: it prints events on stdout, obeys orders on stdin and, like
// the server, kills what it started before it exits.
type standInServer struct {
	session string
	mode    string
	life    *Lifeline // nil without a guardian
	// spawning is held while a process tree is started, and from shutDown on: no process may start
	// after the last scan of the process table.
	spawning sync.Mutex
}

// standIn runs a standInServer in one of these modes:
//
//	normal    shuts down on EOF, a signal or the guardian's death
//	stubborn  ignores all three
//	deaf      is killed by the first signal; it has set up nothing
//	wild      like normal, and starts up to 12 trees, by the seed that follows
//	leaving   like wild, and asks for daemons all the time
//	alone     like normal, without a guardian
//	lockless  like normal, without a lock
func standIn(id string, args []string) int {
	s := &standInServer{session: id, mode: args[0]}
	if s.mode == "deaf" {
		fmt.Println("ready", os.Getpid())
		<-time.After(time.Hour) // signals keep their default effect
		return 0
	}
	if err := s.setUp(); err != nil {
		fmt.Println("error", err)
		return 3
	}
	if s.mode == "stubborn" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	stop := make(chan os.Signal, 4)
	if s.mode != "stubborn" {
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	orders := make(chan string)
	go readOrders(orders)
	fmt.Println("ready", os.Getpid())
	if s.mode == "leaving" {
		go func() {
			for s.life.Detach() == nil {
				<-time.After(time.Millisecond)
			}
		}()
	}
	if s.mode == "wild" || s.mode == "leaving" {
		seed, _ := strconv.ParseUint(args[1], 10, 64)
		go s.startForest(seed)
	}
	return s.serve(stop, orders)
}

func (s *standInServer) setUp() error {
	if err := Seal(); err != nil {
		return err
	}
	if err := Subreaper(); err != nil {
		return err
	}
	if s.mode == "alone" {
		return nil
	}
	if s.mode == "lockless" { // opens another file, as Go's runtime may
		self, err := os.Executable()
		if err != nil {
			return err
		}
		if _, err := unix.Open(self, unix.O_RDONLY, 0); err != nil {
			return err
		}
	}
	var err error
	s.life, err = Inherit()
	return err
}

func readOrders(orders chan<- string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		orders <- in.Text()
	}
	close(orders)
}

func (s *standInServer) serve(stop <-chan os.Signal, orders <-chan string) int {
	var gone, changed <-chan struct{}
	if s.life != nil {
		gone, changed = s.life.Gone(), s.life.ParentChanged()
	}
	for {
		select {
		case sig := <-stop:
			fmt.Println("signal", sig)
			return s.shutDown()
		case <-gone:
			fmt.Println("guardian gone")
			return s.shutDown()
		case <-changed:
			fmt.Println("parent changed")
		case order, open := <-orders:
			if !open {
				orders = nil
				if s.mode == "stubborn" {
					continue
				}
				return s.shutDown()
			}
			if code, exit := s.obey(order); exit {
				return code
			}
		}
	}
}

func (s *standInServer) obey(order string) (code int, exit bool) {
	verb, rest, _ := strings.Cut(order, " ")
	switch verb {
	case "exit":
		code, _ = strconv.Atoi(rest)
		return code, true
	case "tree":
		if pid, err := startTree(rest, s.session, &syscall.SysProcAttr{}); err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println("started", pid)
		}
	case "detach":
		if err := s.life.Detach(); err != nil {
			fmt.Println("error", err)
		}
	case "lock":
		fmt.Println("lock", s.life.Lock() != nil)
	case "guardian":
		fmt.Printf("guardian %d %q\n", s.life.Guardian(), os.Getenv(guardianEnv))
	}
	return 0, false
}

func (s *standInServer) shutDown() int {
	s.spawning.Lock()
	g := &guardian{Config: Config{ID: s.session}, timing: defaultTiming, report: newReporter(nil)}
	if !g.clean() {
		return 4
	}
	if err := removeIfThere(os.Getenv("TEST_RECORD")); err != nil {
		return 4
	}
	return 0
}

// leaf is a shell script that reports its pid and blocks until it is killed: no process opens the
// FIFO for writing. The script needs no environment but its two variables.
const leaf = `"$SHELL_COPY" -c 'echo leaf $$ >&2; : <"$0"' "$FIFO"`

// trees are shell scripts that start process trees, by shape, each with its number of leaf
// processes.
var trees = map[string]struct {
	script string
	leaves int
}{
	"plain":      {leaf, 1},
	"ignoring":   {`trap "" TERM HUP INT; ` + leaf + ` & ` + leaf, 2},
	"daemon":     {`( ` + leaf + ` & )`, 1},
	"pair":       {leaf + ` & ` + leaf + ` & wait`, 2},
	"burst":      {`for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do ( ` + leaf + ` & ); done; ` + leaf, 21},
	"cleared":    {`env -i ` + leaf, 1},
	"setsid":     {`setsid ` + leaf + ` & (setsid ` + leaf + ` &); ` + leaf, 3},
	"unkillable": {`exec "$ROOT_COPY" unkillable`, 1},
	"escaped":    {`( env -i setsid ` + leaf + ` & )`, 1},
}

// startTree starts a process tree and returns the pid of its root. The tree prints to stderr, a
// pipe that the test reads until every process is dead.
func startTree(kind, session string, attr *syscall.SysProcAttr) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	var p *os.Process
	err = proctab.Stamped(proctab.SessionStamp(session), func() (err error) {
		p, err = os.StartProcess(os.Getenv("SHELL_COPY"), []string{"sh", "-c", trees[kind].script}, &os.ProcAttr{
			Env:   append(os.Environ(), proctab.EnvSession+"="+session),
			Files: []*os.File{null, null, os.Stderr},
			Sys:   attr,
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	return p.Pid, p.Release()
}

// startForest starts 1 to 12 random process trees as fast as it can.
func (s *standInServer) startForest(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	kinds := kindsHere()
	for range 1 + rnd.IntN(12) {
		attr := &syscall.SysProcAttr{Setpgid: rnd.IntN(2) == 0}
		if rnd.IntN(4) == 0 {
			attr = &syscall.SysProcAttr{Setsid: true}
		}
		s.spawning.Lock()
		if _, err := startTree(kinds[rnd.IntN(len(kinds))], s.session, attr); err != nil {
			fmt.Println("error", err)
		}
		s.spawning.Unlock()
	}
}

// straysMain runs the cleaner in a process that is not a subreaper: its child leads a session, leaves
// process trees behind and is killed.
func straysMain() int {
	session := fmt.Sprint("strays of ", os.Getpid()) // the cleaner sees the whole machine
	read, write, err := os.Pipe()
	if err != nil {
		return 2
	}
	script := `( ` + leaf + ` & ); ( ` + leaf + ` & ); ( setsid ` + leaf + ` & ); echo built; ` + leaf
	p, err := os.StartProcess(os.Getenv("SHELL_COPY"), []string{"sh", "-c", script}, &os.ProcAttr{
		Env:   append(os.Environ(), proctab.EnvSession+"="+session),
		Files: []*os.File{nil, write, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 2
	}
	_ = write.Close()
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		return 2
	}
	leader, err := proctab.Read(p.Pid)
	if err != nil {
		return 2
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // the test writes this line when the leaf processes are up
	_ = p.Kill()
	c := cleaner{session: session, server: leader.ID}
	for {
		left, done := c.round()
		if done {
			return 0
		}
		c.killer.Pass(left)
	}
}

func foregroundMain() int {
	if len(os.Args) > 2 { // run this program again, as a job in the background
		self, err := os.Executable()
		if err != nil {
			return 2
		}
		p, err := os.StartProcess(self, []string{self, "foreground"}, &os.ProcAttr{
			Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			Sys:   &syscall.SysProcAttr{Setpgid: true},
		})
		if err != nil {
			return 2
		}
		_, _ = p.Wait()
		return 0
	}
	terminal, ours := Foreground(os.Stdin)
	// Standard error is a pipe, while stdout may be the terminal.
	fmt.Fprintln(os.Stderr, terminal, ours)
	return 0
}

// unkillableMain becomes root by the mode of its file and keeps running, so that the unprivileged
// guardian cannot kill it.
func unkillableMain() int {
	if err := syscall.Setuid(0); err != nil {
		fmt.Fprintln(os.Stderr, "leaf failed:", err)
		return 2
	}
	fmt.Fprintln(os.Stderr, "leaf", os.Getpid())
	<-time.After(time.Hour)
	return 0
}
