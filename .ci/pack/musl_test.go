package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestRunsWithMusl runs the static binary in a root whose only C library is musl, and whose names
// come from a name server: pmcp finds its home, resolves a name, and starts, reads and stops
// programs that are linked with musl.
func TestRunsWithMusl(t *testing.T) {
	root := bareRoot(t)
	child := filepath.Join(root, "bin", "child")
	loader := muslProgram(t, filepath.Join(".ci", "pack", "testdata", "child.c"), child)
	unpack(t, theRelease(t), "pmcp-*-linux-"+runtime.GOARCH+".tar.gz", filepath.Join(root, "archive"))
	musl, err := os.ReadFile(loader)
	check(t, err)
	const home = "/home/me"
	check(t, os.MkdirAll(root+home, 0o700))
	for path, content := range map[string][]byte{
		loader: musl, "/etc/passwd": []byte("me:x:0:0::" + home + ":/bin/sh\n"), "/etc/resolv.conf": []byte("nameserver 127.0.0.1\n"),
	} {
		check(t, os.MkdirAll(filepath.Dir(root+path), 0o755))
		check(t, os.WriteFile(root+path, content, 0o755))
	}
	s := enterRoot(t, root, environment(home, "/bin:/usr/bin:/usr/sbin", ""), []string{"/bin/child", "up", "/archive/bin/pmcp"}, "--net")
	info, err := s.call("tools/call", `{"name":"get_server_info","arguments":{}}`)
	check(t, err)
	_, err = s.call("tools/call", `{"name":"start_process","arguments":{"name":"names","cwd":"/tmp","command":"child dns","ready":{"log":"name server"}}}`)
	check(t, err)
	ready, err := s.call("tools/call", `{"name":"start_process","arguments":{"name":"site","cwd":"/tmp","command":"child","ports":{"PORT":0},"ready":{"http":"http://site.test:{PORT}/"}}}`)
	check(t, err)
	log, err := s.call("tools/call", `{"name":"get_logs","arguments":{"process":"site"}}`)
	check(t, err)
	stopped, err := s.call("tools/call", `{"name":"stop_process","arguments":{"process":"*"}}`)
	check(t, err)
	for _, c := range [][2]string{
		{info, home + "/.local/state/pmcp/pmcp.db"}, {info, "storage ok"}, {ready, "running, ready"},
		{log, "user me at " + home + ", site.test 127.0.0.1"}, {stopped, "nothing left"},
	} {
		if !strings.Contains(c[0], c[1]) {
			t.Errorf("got %s, want %q", c[0], c[1])
		}
	}
	s.end(t)
}

// muslProgram compiles a program that needs nothing but musl, and returns the path of musl, which
// loads it.
func muslProgram(t *testing.T, source, to string) (loader string) {
	t.Helper()
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		t.Skip("there is no musl-gcc")
	}
	if out, err := command(".", "musl-gcc", "-o", to, source); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := elf.Open(to)
	check(t, err)
	defer func() { _ = program.Close() }()
	interp := program.Section(".interp")
	if interp == nil {
		t.Fatal("got a static program, want one that musl loads")
	}
	name, err := interp.Data()
	check(t, err)
	needed, err := program.ImportedLibraries()
	check(t, err)
	loader = strings.TrimRight(string(name), "\x00")
	if !strings.Contains(loader, "/ld-musl-") || len(needed) != 1 {
		t.Fatalf("got the loader %s and the libraries %q, want musl alone", loader, needed)
	}
	return loader
}
