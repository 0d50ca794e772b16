package process

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helperListen listens on a port and prints "listening PORT". Its arguments are "tcp ADDRESS",
// "http ADDRESS STATUS", "proxy ADDRESS URL", with "close" for a connection per request, or "child"
// followed by one of these forms, which a child process then runs.
func helperListen(args []string) int {
	if args[0] == "child" {
		cmd := helperCommand("listen", nil, args[1:]...)
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 9
		}
		_ = cmd.Wait()
		return 0
	}
	l, err := net.Listen("tcp", args[1])
	if err != nil {
		fmt.Println(err)
		return 9
	}
	fmt.Println("listening", l.Addr().(*net.TCPAddr).Port)
	if args[0] == "http" {
		status, _ := strconv.Atoi(args[2])
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(status)
		}))
	}
	if args[0] == "proxy" {
		target, _ := url.Parse(args[2])
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = &http.Transport{DisableKeepAlives: slices.Contains(args, "close")}
		_ = http.Serve(l, proxy)
	}
	return sleepForEver()
}

// helperWatcher starts "listen" with its arguments, "--watch" left out, as a child. It obeys its input: "kill" kills the child,
// "crash" does so and prints "boom", "tool" runs something else and prints "boom", "start" starts another one, "print
// TEXT" prints.
func helperWatcher(args []string) int {
	var child *exec.Cmd
	start := func() {
		child = helperCommand("listen", nil, args[1:]...)
		if err := child.Start(); err != nil {
			fmt.Println(err)
		}
	}
	kill := func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	start()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		order, text, _ := strings.Cut(in.Text(), " ")
		switch order {
		case "kill":
			kill()
			fmt.Println("killed")
		case "crash":
			kill()
			fmt.Println("boom")
		case "tool":
			_ = helperCommand("block", nil, "exit", "1").Run()
			fmt.Println("boom")
		case "start":
			start()
		case "print":
			fmt.Println(text)
		}
	}
	kill()
	return 0
}

// helperAsk prints a question without ending the line, and then its input and whether the input
// came from a terminal.
func helperAsk([]string) int {
	_, err := unix.IoctlGetTermios(0, termiosRequest)
	fmt.Print("Name: ")
	line, readErr := bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Printf("got %q, terminal %v, end %v\n", strings.TrimSpace(line), err == nil, readErr)
	return 0
}

// helperDrain prints "up PID". At the first signal that asks it to end it works for 300 ms, then prints how many it has
// got.
func helperDrain([]string) int {
	asked := make(chan os.Signal, 8)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGHUP)
	fmt.Println("up", os.Getpid())
	<-asked
	n := 1
	for done := time.After(300 * time.Millisecond); ; n++ {
		select {
		case <-asked:
		case <-done:
			fmt.Println("signals:", n)
			return 0
		}
	}
}

// helperWrap runs helperDrain. At SIGTERM it forwards that and waits, or only waits, or leaves.
func helperWrap(args []string) int {
	asked := make(chan os.Signal, 8)
	signal.Notify(asked, syscall.SIGTERM)
	child := helperCommand("drain", nil)
	if err := child.Start(); err != nil {
		fmt.Println(err)
		return 9
	}
	<-asked
	switch args[0] {
	case "leave":
		return 0
	case "forward":
		<-time.After(50 * time.Millisecond) // its own work; a second signal must not meet the first
		_ = child.Process.Signal(syscall.SIGTERM)
	}
	_ = child.Wait()
	return 0
}

// helperFlags prints properties of the file descriptors that it inherited.
func helperFlags([]string) int {
	for fd := range 3 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		fmt.Printf("fd %d nonblocking %v %v\n", fd, flags&unix.O_NONBLOCK != 0, err)
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	fmt.Println("descriptors", len(entries))
	fmt.Println("group", unix.Getpgrp() == os.Getpid())
	return 0
}

// helperSpin keeps one processor busy and uses as much memory as its argument, in MiB. It ends after
// three minutes, or with its parent.
func helperSpin(args []string) int {
	megabytes, _ := strconv.Atoi(args[0])
	memory := make([]byte, megabytes<<20)
	for i := 0; i < len(memory); i += 512 {
		memory[i] = 1
	}
	fmt.Println("up", os.Getpid())
	for parent, begin := os.Getppid(), time.Now(); time.Since(begin) < 3*time.Minute && os.Getppid() == parent; {
		memory[0]++
	}
	return int(memory[0]) & 1
}

// restart starts the process called name again with its Spec as altered by change; nil alters nothing.
func restart(ctx context.Context, m *Manager, name string, change func(*Spec)) (Status, error) {
	st, err := m.Status(name)
	if err != nil {
		return st, err
	}
	spec := st.Spec.clone()
	if change != nil {
		change(&spec)
	}
	spec.Name = name
	st, _, err = m.Start(ctx, spec, RestartRunning)
	return st, err
}

// clone returns a deep copy of s.
func (s Spec) clone() Spec {
	s.Args, s.Env = slices.Clone(s.Args), maps.Clone(s.Env)
	if s.Ready != nil {
		s.Ready = new(*s.Ready)
		if s.Ready.Port != nil {
			s.Ready.Port = new(*s.Ready.Port)
		}
	}
	if s.Limits != nil {
		s.Limits = new(*s.Limits)
	}
	return s
}
