package project

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/server/stdio/stdiotest"
)

// TestEnvFilesExpand checks the syntax of env files, from which variables they expand, and
// that later files and the variables of the call take precedence.
func TestEnvFilesExpand(t *testing.T) {
	t.Setenv("ENV_FILES_HOME", "/home/me")
	own := map[string]string{"PORT": "4000"}
	for content, want := range map[string]string{
		"A=${NONE:-3000}\nB=${NONE-x}${A+y}":                        "A=3000 B=xy",
		"A=${ENV_FILES_HOME}/data\nB=$A/b":                          "A=/home/me/data B=/home/me/data/b",
		"ENV_FILES_HOME=/x\nA=$ENV_FILES_HOME\nB=${ENV_FILES_HOME}": "A=/x B=/x",
		"PORT=3000\nA=http://localhost:${PORT}\nB=${PWD:+set}":      "A=http://localhost:4000 B=set",
		"A='$B ${C'\nB=a$$b":                                        "A=$B ${C B=a$b",
		"\ufeffA=1\r\nB=\"x\r\ny\" # comment\r\n":                   "A=1 B=x\ny",
		"export A=b\nB=1 # one\nB=2":                                "A=b B=2",
		`A="C:\Users\me"` + "\nB=C:\\new":                           `A=C:\Users\me B=C:\new`,
		"A=1\x01B=2\x01B=${B}3":                                     "A=1 B=23",
		"A=$2y$10$xx\nB=\"{\\\"k\\\": \\\"\\$v\\\"}\"":              `A=$2y$10 B={"k": "$v"}`,
		"A=1\x01PATH=./bin:$PATH\x01PATH=./b:$PATH\nB=${PATH}":      "A=1 B=./b:./bin:" + os.Getenv("PATH"),
	} {
		dir := t.TempDir()
		var files []string
		for i, part := range strings.Split(content, "\x01") {
			files = append(files, fmt.Sprint(i))
			stdiotest.NoErr(t, os.WriteFile(filepath.Join(dir, files[i]), []byte(part), 0o600))
		}
		got, err := readEnvFiles(files, dir, own)
		if err != nil {
			t.Errorf("%q: %v", content, err)
		} else if text := "A=" + got.vars["A"] + " B=" + got.vars["B"]; text != want || got.vars["PORT"] != "4000" {
			t.Errorf("%q: got %s, PORT=%s, want %s, PORT=4000", content, text, got.vars["PORT"], want)
		}
	}
}

// TestEnvFileErrorNamesTheLine checks that an error of an env file has the file and the
// line, and nothing of what stands there, and that no content of a file has no end.
func TestEnvFileErrorNamesTheLine(t *testing.T) {
	const s = "hunter2"
	for content, want := range map[string]string{
		"A=1\n\n# " + s + "\n" + s + " x=1": "line 4: not dotenv syntax: want NAME=value",
		"A=1\nB!" + s + "=" + s:             "line 2: not dotenv syntax: want NAME=value",
		"=" + s:                             "line 1: not dotenv syntax: want NAME=value",
		"A=\"x\ny\"\nB=\"" + s + "\n\\\"" + s + "\nC=1\n":    "line 3: not dotenv syntax: a quote is not closed",
		"A='x\ny'\nB=" + s + "${\nC=1\n":                     "line 3: not dotenv syntax: after ${ there is no NAME}",
		"A=1\nB=${NONE:?" + s + "}":                          "line 2: NONE is not set",
		"A=1\nB=" + s + "\x00":                               "line 2: it has a NUL byte",
		"A=" + s + "\n" + strings.Repeat("A=$A$A\n", 40):     "KiB",
		"A=" + s + strings.Repeat("${A:-"+s+"}", 50_000):     "line 1: there are too many $",
		strings.Repeat("A="+s+"$B\n", 50_000) + "B=\"" + s:   "there are too many $",
		"A=" + s + "\nB=\"" + strings.Repeat("\n"+s, 50_000): "line 2: not dotenv syntax: a quote is not closed",
	} {
		file := filepath.Join(t.TempDir(), "bad.env")
		stdiotest.NoErr(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := readEnvFiles([]string{file}, "/", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "argument env_files: "+file+", line ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), s) {
			t.Errorf("%.80q: got error %v, want one with %s and without %s", content, err, want, s)
		}
	}
}

// FuzzEnvFile checks that no content of a file makes the parser panic.
func FuzzEnvFile(f *testing.F) {
	for _, seed := range []string{"A=${B:-${C-d}}e", "A=\"x\\\"\ny\" # c", "export A = 'b'\nB", "A=${B:?c}\n${", "A=${A:-}}${{}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := envFiles{vars: map[string]string{}}
		if err := e.add("file", text+"\n"); err == nil && e.vars[""] != "" {
			t.Errorf("got a variable without a name from %q", text)
		}
	})
}
