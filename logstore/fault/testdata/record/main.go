// Command record runs the programs under testdata/programs and writes their output to
// testdata/corpus. Each line of output becomes one line of the file: stream (o or e), level as
// logstore guesses it, "|", cleaned text. The last line holds the exit status.
//
//	go run ./logstore/fault/testdata/record [-only regexp] [-modules dir]
//
// A program is a text archive: headers, then its files, each after a line "-- name --". The headers
// are "run:" the shell command, "needs:" tools, "npm:" packages, "hand:" if the output was written
// by hand because the program is not available everywhere, "clean:" if it holds no error and goes to
// testdata/clean. Paths of the machine are replaced by neutral ones. A program whose tools are
// missing is skipped; its old recording stays.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"pmcp/logstore"
)

const (
	packages = "typescript@5 eslint@9 @eslint/js@9 vite@6 webpack@5 webpack-cli@6 jest@29 vitest@3 mocha@11 pino@9 winston@3"
	limit    = 4 * time.Minute
)

func main() {
	log.SetFlags(0)
	root := flag.String("testdata", "logstore/fault/testdata", "the directory with programs and corpus")
	only := flag.String("only", "", "record only programs whose name matches")
	modules := flag.String("modules", filepath.Join(os.TempDir(), "fault-npm"), "directory where npm packages are installed")
	flag.Parse()
	names, err := filepath.Glob(filepath.Join(*root, "programs", "*.txt"))
	if err != nil || len(names) == 0 {
		log.Fatalf("no programs in %s: %v", *root, err)
	}
	match := regexp.MustCompile(*only)
	for _, name := range names {
		base := strings.TrimSuffix(filepath.Base(name), ".txt")
		if !match.MatchString(base) {
			continue
		}
		if err := record(name, filepath.Join(*root, "corpus", base+".txt"), *modules); err != nil {
			log.Printf("%s: %v", base, err)
		}
	}
}

type program struct {
	headers map[string]string
	files   map[string][]byte
}

func parse(data []byte) program {
	p := program{headers: map[string]string{}, files: map[string][]byte{}}
	var file string
	for line := range bytes.Lines(data) {
		text := strings.TrimSuffix(string(line), "\n")
		if strings.HasPrefix(text, "-- ") && strings.HasSuffix(text, " --") {
			file = text[3 : len(text)-3]
			p.files[file] = nil
			continue
		}
		if file != "" {
			p.files[file] = append(p.files[file], line...)
		} else if key, value, ok := strings.Cut(text, ":"); ok {
			p.headers[key] = strings.TrimSpace(value)
		}
	}
	return p
}

func record(source, target, modules string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	p := parse(data)
	for _, tool := range strings.Fields(p.headers["needs"]) {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("skipped: %w", err)
		}
	}
	base, err := os.MkdirTemp("", "fault-record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	base, _ = filepath.EvalSymlinks(base)
	dir := filepath.Join(base, "project")
	if err := p.unpack(dir); err != nil {
		return err
	}
	if list := p.headers["npm"]; list != "" {
		if list == "common" {
			list = packages
		} else {
			modules += "-" + strings.FieldsFunc(list, func(r rune) bool { return r == '@' || r == ' ' })[0]
		}
		if err := install(modules, list); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
			return err
		}
	}
	lines, end, err := run(dir, p.headers["run"], p.headers["hand"] != "")
	if err != nil {
		return err
	}
	home, _ := os.UserHomeDir()
	away, _ := filepath.Rel(dir, filepath.Join(modules, "node_modules"))
	neutral := strings.NewReplacer(away, "node_modules", filepath.Join(modules, "node_modules"), "/home/dev/project/node_modules", modules, "/home/dev/project",
		dir, "/home/dev/project", base, "/home/dev", strings.TrimPrefix(dir, "/"), "home/dev/project", home+"/", "/home/dev/")
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "%c%d|%s\n", "oe"[l.Stream], l.Level, neutral.Replace(l.Text))
	}
	if e := p.headers["end"]; e != "" {
		end = e
	}
	fmt.Fprintln(&out, end)
	log.Printf("%s: %d lines, %s", filepath.Base(source), len(lines), end)
	if p.headers["clean"] != "" {
		target = filepath.Join(filepath.Dir(filepath.Dir(target)), "clean", filepath.Base(target))
	}
	return os.WriteFile(target, []byte(out.String()), 0o644)
}

func (p program) unpack(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, data := range p.files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// install runs npm to install the packages into dir, unless it has done so before.
func install(dir, list string) error {
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"project","private":true}`), 0o644); err != nil {
		return err
	}
	cmd := exec.Command("npm", append([]string{"install", "--no-audit", "--no-fund"}, strings.Fields(list)...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd.Run()
}

// run returns the lines of a command as logstore stores them. If hand is set, it returns the lines
// of the file output, where "e|text" is standard error.
func run(dir, command string, hand bool) ([]logstore.Line, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	store, err := logstore.Open(ctx, logstore.Options{})
	if err != nil {
		return nil, "", err
	}
	defer store.Close()
	id, _, _ := store.NewRun("record", "program")
	end := "exit 0"
	if hand {
		data, err := os.ReadFile(filepath.Join(dir, "output"))
		if err != nil {
			return nil, "", err
		}
		for line := range bytes.Lines(data) {
			stream := logstore.Stdout
			if bytes.HasPrefix(line, []byte("e|")) {
				stream = logstore.Stderr
			}
			store.Capture(id, stream, time.Now(), line[2:])
		}
	} else if end, err = execute(ctx, dir, command, func(stream uint8, p []byte) { store.Capture(id, stream, time.Now(), p) }); err != nil {
		return nil, "", err
	}
	store.EndCapture(id)
	page, err := store.Read(ctx, logstore.Query{Runs: []int64{id}, Limit: 10000})
	if err != nil {
		return nil, "", err
	}
	return page.Lines, end, nil
}

func execute(ctx context.Context, dir, command string, sink func(stream uint8, p []byte)) (string, error) {
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", "bash", "-c", command)
	cmd.Dir = dir
	home, _ := os.UserHomeDir()
	cmd.Env = []string{"PATH=" + filepath.Join(dir, "node_modules/.bin") + ":" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "TERM=dumb", "NO_COLOR=1", "NPM_CONFIG_USERCONFIG=/dev/null", "NPM_CONFIG_UPDATE_NOTIFIER=false",
		"NEXT_TELEMETRY_DISABLED=1", "PYTHONDONTWRITEBYTECODE=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var readers sync.WaitGroup
	pipe := func(stream uint8) (io.Writer, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		readers.Go(func() {
			defer r.Close()
			buf := make([]byte, 32<<10)
			for {
				n, err := r.Read(buf)
				if n > 0 {
					sink(stream, buf[:n])
				}
				if err != nil {
					return
				}
			}
		})
		return w, nil
	}
	out, err := pipe(logstore.Stdout)
	if err != nil {
		return "", err
	}
	errs, err := pipe(logstore.Stderr)
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = out, errs
	err = cmd.Start()
	if err == nil {
		err = cmd.Wait()
	}
	out.(*os.File).Close()
	errs.(*os.File).Close()
	readers.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return "signal " + signalName(status.Signal()), nil
	}
	return fmt.Sprintf("exit %d", status.ExitStatus()), nil
}

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGSEGV:
		return "SIGSEGV"
	case syscall.SIGABRT:
		return "SIGABRT"
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGKILL:
		return "SIGKILL"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGFPE:
		return "SIGFPE"
	default:
		return fmt.Sprintf("signal %d", s)
	}
}
