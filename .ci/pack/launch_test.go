package main

import (
	"bufio"
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long the tests wait for pmcp.
const patience = 2 * time.Minute

// TestLaunchersLeaveNothing kills a client with SIGKILL while the test holds pmcp's stdin open,
// and checks that nothing is left of the session and of its launcher.
func TestLaunchersLeaveNothing(t *testing.T) {
	root := t.TempDir()
	ways := launchers(t, root, root)
	for name, argv := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needsNode(t, name)
			home := t.TempDir() // in the environment of every process of the session
			in, input, err := os.Pipe()
			check(t, err)
			defer func() { _ = input.Close() }()
			stderr, err := os.Create(filepath.Join(home, "stderr"))
			check(t, err)
			defer func() { _ = stderr.Close() }()
			client := exec.Command(os.Args[0], append([]string{clientMarker}, argv...)...)
			client.Dir, client.Env, client.Stderr = home, environment(home, os.Getenv("PATH"), npmRegistry(t)), stderr
			client.ExtraFiles = []*os.File{in, input}
			out, err := client.StdoutPipe()
			check(t, err)
			check(t, client.Start())
			check(t, in.Close())
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				log, _ := os.ReadFile(stderr.Name())
				t.Errorf("got %q, %v, want a session: %s", line, err, log)
			}
			// client, guardian, server, and two of the tree
			if found := await(t, home, func(n int) bool { return n >= 5 }); len(found) < 5 {
				t.Errorf("got the processes %q, want a session with a tree", found)
			}
			check(t, client.Process.Kill())
			_ = client.Wait()
			if left := await(t, home, func(n int) bool { return n == 0 }); len(left) > 0 {
				log, _ := os.ReadFile(stderr.Name())
				t.Errorf("got %q left, want nothing: %s", left, log)
			}
		})
	}
}

// TestReadmeInstalls runs the lines of README.md that install a release, twice as for an update, in
// the directory of the release and an empty home, then each program that they install, and the
// lines that remove it.
func TestReadmeInstalls(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the lines are for amd64")
	}
	dir := theRelease(t)
	readme, err := os.ReadFile("README.md")
	check(t, err)
	line := func(pattern string) string {
		return regexp.MustCompile("(?m)^" + pattern + ".*$").FindString(string(readme))
	}
	for name, lines := range map[string][2]string{
		"archive": {line("mkdir .* tar "), line(`\(cd ~/\.local && rm `)},
		"npx":     {line("npm install "), line("npm uninstall ")},
	} {
		t.Run(name, func(t *testing.T) {
			needsNode(t, name)
			home := t.TempDir()
			script := []string{lines[0], lines[0], "pmcp --version", `test -x "$HOME/.local/bin/pmcp"`, lines[1], line("rm -rf "), `! find "$HOME/.local" ! -type d | grep .`}
			cmd := exec.Command("sh", "-exc", strings.Join(script, "\n"))
			cmd.Dir = dir
			cmd.Env = append(environment(home, home+"/.local/bin:"+os.Getenv("PATH"), npmRegistry(t)), "npm_config_prefix="+home+"/.local")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "pmcp "+versionOf(t, dir)+" (commit ") {
				t.Errorf("got %v and %s, want a version, then nothing left", err, out)
			}
		})
	}
}

const clientMarker = "client-of-a-test"

// runClient is a client that is killed: it launches pmcp with stdin from descriptor 3, whose
// other end is descriptor 4, starts a tree of processes and prints "ready".
func runClient(argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	in := os.NewFile(3, "stdin")
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = errors.Join(cmd.Start(), in.Close())
	}
	if err == nil {
		s := &session{in: os.NewFile(4, "input"), out: bufio.NewReader(out)}
		if err = s.begin(); err == nil {
			_, err = s.call("tools/call", `{"name":"start_process","arguments":{"name":"tree","cwd":"/tmp","command":"sh -c 'setsid sleep 300 & echo grown; sleep 300'","ready":{"log":"grown"}}}`)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, out) // until it is killed
	return 0
}

// TestStartsInEmptyRoot starts pmcp in every way in a root that has only busybox, and Node for npx:
// no C library, nothing in /etc, an empty home. The way from the artefacts to the answer of a tool
// may take 20 s of CPU time and, where nothing else runs, of time.
func TestStartsInEmptyRoot(t *testing.T) {
	dir := theRelease(t)
	root := emptyRoot(t)
	began, before := time.Now(), usedCPU(t)
	ways := launchers(t, root, "/")
	installing, installed := usedCPU(t)-before, time.Since(began)
	for name, argv := range ways {
		t.Run(name, func(t *testing.T) {
			needsNode(t, name)
			home := "/home/" + strings.ReplaceAll(name, " ", "-")
			check(t, os.MkdirAll(root+home, 0o700))
			began, before := time.Now(), usedCPU(t)
			env := environment(home, "/bin:/usr/bin:/usr/sbin", npmRegistry(t))
			if name == "npx" {
				env = append(env, "BINDS="+strings.Join(nodeFiles(t), " "))
			}
			s := enterRoot(t, root, env, argv)
			info, err := s.call("tools/call", `{"name":"get_server_info","arguments":{}}`)
			check(t, err)
			took := installed + time.Since(began)
			ran, err := s.call("tools/call", `{"name":"start_process","arguments":{"name":"once","cwd":"/tmp","command":"echo it runs","wait":"exit"}}`)
			check(t, err)
			head, err := command(".", "git", "rev-parse", "HEAD")
			check(t, err)
			if !strings.Contains(info, versionOf(t, dir)) || !strings.Contains(info, strings.TrimSpace(head)) || !strings.Contains(info, "storage ok") || !strings.Contains(ran, "it runs") {
				t.Errorf("got %s and %s, want a server with a database, and the output of a process", info, ran)
			}
			s.end(t)
			cpu := installing + usedCPU(t) - before
			t.Logf("%v and %v of CPU time, with the installation of all ways", took, cpu)
			if cpu > 20*time.Second || *full && took > 20*time.Second {
				t.Errorf("got %v and %v of CPU time, want at most 20 s", took, cpu)
			}
		})
	}
}

// usedCPU returns the CPU time of this process and of all below it that have ended.
func usedCPU(t *testing.T) (all time.Duration) {
	t.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		check(t, syscall.Getrusage(who, &u))
		all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all
}

// enterRoot begins a session with a command in a root and in namespaces of its own, also in those
// that more options of unshare name. BINDS in env names paths that the root has, too.
func enterRoot(t *testing.T, root string, env, argv []string, more ...string) *rootSession {
	t.Helper()
	cmd := exec.Command("unshare", slices.Concat([]string{"-rmpf", "--kill-child"}, more, []string{"sh", "-ec", enterScript, "sh", root}, argv)...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		kill.Stop()
		_ = cmd.Process.Kill() // after a failure
	})
	s := &rootSession{session{in: in, out: bufio.NewReader(out)}, in, cmd}
	check(t, s.begin())
	return s
}

// A rootSession is a session in a root.
type rootSession struct {
	session
	input io.Closer
	cmd   *exec.Cmd
}

// end ends the session and checks that pmcp exits with 0.
func (s *rootSession) end(t *testing.T) {
	t.Helper()
	check(t, errors.Join(s.input.Close(), s.cmd.Wait()))
}

// enterScript makes its first argument the root for the others, with /proc, /dev/null and the paths
// in BINDS.
const enterScript = `cd "$1"
shift
mount -t proc proc proc
for path in /dev/null $BINDS; do
	if [ -d "$path" ]; then mkdir -p ".$path"; else mkdir -p ".${path%/*}"; touch ".$path"; fi
	mount --bind "$path" ".$path"
done
exec chroot . "$@"`

// emptyRoot returns a directory to be a root, with busybox as its only program.
func emptyRoot(t *testing.T) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("there is no busybox")
	}
	program, err := os.ReadFile(busybox)
	check(t, err)
	if bytes.Contains(program, []byte("/ld-linux")) {
		t.Skip("busybox is not static")
	}
	root := bareRoot(t)
	check(t, os.WriteFile(filepath.Join(root, "bin", "busybox"), program, 0o755))
	for _, applet := range []string{"sh", "uname", "readlink", "dirname", "echo"} {
		check(t, os.Symlink("busybox", filepath.Join(root, "bin", applet)))
	}
	return root
}

// bareRoot returns a directory to be a root, with no program.
func bareRoot(t *testing.T) string {
	t.Helper()
	if out, err := command(".", "unshare", "-rmpf", "true"); err != nil {
		t.Skipf("there are no user namespaces: %v: %s", err, out)
	}
	root := t.TempDir()
	for _, dir := range []string{"proc", "dev", "tmp", "bin"} {
		check(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	return root
}

// launchers installs pmcp below root in every way, and returns the command of each. The paths in
// the commands begin with prefix instead of root.
func launchers(t *testing.T, root, prefix string) map[string][]string {
	t.Helper()
	dir := theRelease(t)
	unpack(t, dir, "pmcp-*-linux-"+runtime.GOARCH+".tar.gz", filepath.Join(root, "archive"))
	unpack(t, dir, "pmcp-*-linux-"+runtime.GOARCH+".mcpb", filepath.Join(root, "bundle"))
	text, err := os.ReadFile(filepath.Join(root, "bundle", "manifest.json"))
	check(t, err)
	var manifest struct {
		Server struct {
			Config struct{ Command string } `json:"mcp_config"`
		}
	}
	check(t, json.Unmarshal(text, &manifest))
	path := filepath.Join(prefix, "archive", "bin", "pmcp")
	return map[string][]string{
		"path":   {path},
		"shell":  {"sh", "-c", path + "; exit $?"},
		"bundle": {strings.ReplaceAll(manifest.Server.Config.Command, "${__dirname}", filepath.Join(prefix, "bundle"))},
		"npx":    {"node", filepath.Join(npmDir(), "bin", "npx-cli.js"), "-y", "pmcp"},
	}
}

// environment returns the variables of a session; registry is that of npm.
func environment(home, path, registry string) []string {
	return []string{"HOME=" + home, "PATH=" + path, "npm_config_registry=" + registry, "npm_config_update_notifier=false"}
}

// npmDir returns the directory of npm, or "".
func npmDir() string {
	npm, err := exec.LookPath("npm")
	if err == nil {
		npm, err = filepath.EvalSymlinks(npm)
	}
	if err != nil {
		return ""
	}
	return filepath.Dir(filepath.Dir(npm))
}

// needsNode skips a test of npx if there is no npm.
func needsNode(t *testing.T, way string) {
	t.Helper()
	if way != "npx" {
		return
	}
	if _, err := os.Stat(filepath.Join(npmDir(), "bin", "npx-cli.js")); err != nil {
		t.Skip("there is no npm: ", err)
	}
}

// nodeFiles returns the paths that node and npx need: Node, its libraries, and npm.
func nodeFiles(t *testing.T) []string {
	t.Helper()
	node, err := exec.LookPath("node")
	check(t, err)
	libraries, err := command(".", "ldd", node)
	check(t, err)
	paths := []string{node, npmDir()}
	for word := range strings.FieldsSeq(libraries) {
		if filepath.IsAbs(word) {
			paths = append(paths, word)
		}
	}
	return paths
}

// npmRegistry serves the npm packages of the release, and returns the URL.
func npmRegistry(t *testing.T) string {
	t.Helper()
	dir := theRelease(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if strings.HasSuffix(name, ".tgz") {
			http.ServeFileFS(w, r, os.DirFS(dir), name)
			return
		}
		found, _ := filepath.Glob(filepath.Join(dir, name+"-[0-9]*.tgz"))
		if len(found) != 1 {
			http.NotFound(w, r)
			return
		}
		archive, err := os.ReadFile(found[0])
		metadata, err2 := exec.Command("tar", "xzOf", found[0], "package/package.json").Output()
		var one map[string]any
		if err := errors.Join(err, err2, json.Unmarshal(metadata, &one)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		sum := sha512.Sum512(archive)
		one["dist"] = map[string]string{
			"tarball": "http://" + r.Host + "/" + filepath.Base(found[0]), "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}
		version := one["version"].(string)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": name, "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: one},
		})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// await waits until the number of processes whose home directory is home is as wanted, and returns
// them.
func await(t *testing.T, home string, wanted func(n int) bool) []string {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		found := processes(t, home)
		if wanted(len(found)) || time.Now().After(end) {
			return found
		}
		<-time.After(20 * time.Millisecond)
	}
}

// processes returns the command lines of the processes whose home directory is home.
func processes(t *testing.T, home string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	check(t, err)
	for _, dir := range all {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), "HOME="+home) {
			continue
		}
		argv, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, strings.ReplaceAll(string(argv), "\x00", " "))
	}
	return found
}

// A session is a client's connection with pmcp.
type session struct {
	in  io.Writer
	out *bufio.Reader
	id  int
}

// begin initialises the connection.
func (s *session) begin() error {
	_, err := s.call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if err == nil {
		_, err = fmt.Fprintln(s.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return err
}

// call sends a request and returns the line of its answer, which is no error.
func (s *session) call(method, params string) (string, error) {
	s.id++
	if _, err := fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.id, method, params); err != nil {
		return "", err
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return "", err
		}
		var answer struct {
			ID     int
			Error  json.RawMessage
			Result struct{ IsError bool }
			Method string
		}
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			return "", err
		}
		switch {
		case answer.Method != "" || answer.ID != s.id:
		case answer.Error != nil || answer.Result.IsError:
			return "", errors.New(line)
		default:
			return line, nil
		}
	}
}
