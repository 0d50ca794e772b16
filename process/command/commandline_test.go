package command

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSplitReadsShellWords(t *testing.T) {
	for _, c := range []struct {
		line string
		env  map[string]string
		argv []string
	}{
		{"npm run dev", nil, []string{"npm", "run", "dev"}},
		{`  a   "b c" 'd "e' f\ g  `, nil, []string{"a", "b c", `d "e`, "f g"}},
		{`A=1 B="x y" cmd C=3`, map[string]string{"A": "1", "B": "x y"}, []string{"cmd", "C=3"}},
		{`EMPTY= cmd`, map[string]string{"EMPTY": ""}, []string{"cmd"}},
		{`cmd ""`, nil, []string{"cmd", ""}},
		{`cmd '$HOME' "\$HOME" \*`, nil, []string{"cmd", "$HOME", "$HOME", "*"}},
		{`cmd "a\nb" 'a\nb'`, nil, []string{"cmd", `a\nb`, `a\nb`}},
		{`node -e 'f(); g()'`, nil, []string{"node", "-e", "f(); g()"}},
		{`git log HEAD~1`, nil, []string{"git", "log", "HEAD~1"}},
		{`curl -d {} x`, nil, []string{"curl", "-d", "{}", "x"}},
		{`grep [ x`, nil, []string{"grep", "[", "x"}},
		{"ls # comment", nil, []string{"ls"}},
		{`echo a#b`, nil, []string{"echo", "a#b"}},
		{`echo 'it''s' --flag=x -- "" 'a|b' "c;d" 'e>f' "g && h"`, nil, []string{"echo", "its", "--flag=x", "--", "", "a|b", "c;d", "e>f", "g && h"}},
		{"echo one \\\n  two", nil, []string{"echo", "one", "two"}},
		{"/a/tool héllo", nil, []string{"/a/tool", "héllo"}},
		{`sh -c "a | b"`, nil, []string{"sh", "-c", "a | b"}},
	} {
		env, argv, err := Read(c.line, t.TempDir()).Split()
		if err != nil || !maps.Equal(env, c.env) || !slices.Equal(argv, c.argv) {
			t.Errorf("%s: %v %q, %v; want %v %q", c.line, env, argv, err, c.env, c.argv)
		}
	}
}

func TestSplitRefusesShellSyntax(t *testing.T) {
	const useShell = "needs a shell"
	for line, want := range map[string]string{
		"cd web":                "give the directory as cwd",
		"":                      "no command",
		"# nothing":             "no command",
		"A=1":                   "no command",
		`echo "open`:            "quote",
		"cd web && npm start":   useShell,
		"npm start 2>&1":        useShell,
		"npm start | tail -20":  useShell,
		"npm start &":           useShell,
		"a | b":                 useShell,
		"a; b":                  useShell,
		"a && b":                useShell,
		"a || b":                useShell,
		"a > out":               useShell,
		"a < in":                useShell,
		"echo $HOME":            useShell,
		`echo "${HOME}"`:        useShell,
		"echo $(date)":          useShell,
		"echo `date`":           useShell,
		"ls *.go":               useShell,
		"ls ?.go":               useShell,
		"ls {a,b}":              useShell,
		"ls ~/x":                useShell,
		"~/bin/x":               useShell,
		"! a":                   useShell,
		"(a)":                   useShell,
		"if a; then b; fi":      useShell,
		"A=$(x) b":              useShell,
		"A+=1 b":                useShell,
		"diff <(a) b":           useShell,
		"cat <<EOF\nhello\nEOF": useShell,
		"> x":                   useShell,
	} {
		_, argv, err := Read(line, t.TempDir()).Split()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want an error with %q", line, argv, err, want)
		}
	}
}

func TestSplitKeepsPathWhole(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "my tools"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "my tools", "run it")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{file, "./my tools/run it"} {
		if _, argv, err := Read(line, dir).Split(); err != nil || !slices.Equal(argv, []string{line}) {
			t.Errorf("%s: %q, %v; want one word", line, argv, err)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"a 'b' \"c\" d\\ e", "A=1 b", "$'x'", "a {b..c}", "[[ x ]]", "\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		_, argv, err := Read(line, "/").Split()
		if err == nil && len(argv) == 0 {
			t.Errorf("%q: got neither command nor error, want one", line)
		}
	})
}

func TestAssignedFindsLiteralValues(t *testing.T) {
	for line, want := range map[string]string{
		"A='b c' D=$E f > g": "map[A:[b c]]", `cd x; export A="b c"; A=d e | f`: "map[A:[b c d]]", "a b=c": "map[]", "a |": "map[]",
	} {
		if got := fmt.Sprint(Read(line, "/").Assigned()); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}
