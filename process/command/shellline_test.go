package command

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestParseLeavesOutWhatIsNotNeeded checks what a line becomes: its directory, its
// program without a shell, or the line that a shell executes.
func TestParseLeavesOutWhatIsNotNeeded(t *testing.T) {
	for line, want := range map[string]string{
		// the directory, the variables, the words, the lines of a tail, the notes shortened
		"npm run dev":                           "- map[] npm,run,dev 0",
		"npm test 2>&1":                         "- map[] sh,-c,exec npm test 2>&1 0",
		"npm test 2>&1 | tail -50":              "- map[] sh,-c,exec npm test 2>&1  50 left out: | tail -50",
		"npm test |& tail -n 7":                 "- map[] npm,test 7 left out: |& tail -n 7",
		"npm test | tail":                       "- map[] npm,test 10 left out: | tail",
		"npm test | head -3":                    "- map[] sh,-c,npm test | head -3 0 exit code is",
		"tail -f x | tail -3":                   "- map[] tail,-f,x 3 left out: | tail -3",
		"#!/bin/bash\na\nb":                     "- map[] bash,-c,#!/bin/bash\na\nb 0",
		"npm test | cat":                        "- map[] sh,-c,npm test | cat 0 exit code is",
		"git log | less":                        "- map[] git,log 0 left out: | less",
		"git log | less -R":                     "- map[] sh,-c,git log | less -R 0 exit code is",
		"git log | more":                        "- map[] git,log 0 left out: | more",
		"npm test | grep -v x | tail --lines=5": "- map[] sh,-c,npm test | grep -v x  5 exit code is; left out: | tail --lines=5",
		"npm test | tail -n +5":                 "- map[] sh,-c,npm test | tail -n +5 0 exit code is",
		"npm test | tail -f":                    "- map[] sh,-c,npm test | tail -f 0 exit code is",
		"npm test | tail -5 > out":              "- map[] sh,-c,npm test | tail -5 > out 0 exit code is",
		"npm test | tail -5 file":               "- map[] sh,-c,npm test | tail -5 file 0 exit code is",
		"npm test | head -c 100":                "- map[] sh,-c,npm test | head -c 100 0 exit code is",
		"nohup npm start &":                     "- map[] npm,start 0 left out: nohup, &",
		"PORT=3000 nohup npm start 2>&1 &":      "- map[] sh,-c,PORT=3000 exec npm start 2>&1  0 left out: nohup, &",
		"nohup -h":                              "- map[] nohup,-h 0",
		"cd web && npm run dev":                 "web map[] npm,run,dev 0 cwd: /p/web",
		"cd web; npm run dev":                   "web map[] npm,run,dev 0 cwd: /p/web",
		"cd web\nnpm run dev":                   "web map[] npm,run,dev 0 cwd: /p/web",
		"(cd web && npm run dev)":               "- map[] sh,-c,(cd web && npm run dev) 0",
		"{ cd web; npm run dev; }":              "- map[] sh,-c,{ cd web; npm run dev; } 0",
		"cd 'my web' && PORT=1 ./run":           "my web map[PORT:1] ./run 0 cwd: /p/my web",
		"cd /abs/x && cd ../y && make":          "/abs/y map[] make 0 cwd: /abs/y",
		"cd a && cd b && make | tail -2 &":      "a/b map[] make 2 left out: | tail -2, &; cwd: /p/a/b",
		"cd web && npm ci && npm test":          "web map[] sh,-c,npm ci && npm test 0 cwd: /p/web",
		"cd a && b || c":                        "a map[] sh,-c,b || c 0 cwd: /p/a",
		"cd a || b":                             "- map[] sh,-c,cd a || b 0",
		"cd a | b":                              "- map[] sh,-c,cd a | b 0 exit code is",
		"! cd a && b":                           "- map[] sh,-c,! cd a && b 0",
		"cd a && b & c":                         "- map[] sh,-c,cd a && b & c 0 & is named",
		"cd $D && b":                            "- map[] sh,-c,cd $D && b 0",
		"cd ~/x && b":                           "- map[] sh,-c,cd ~/x && b 0",
		"cd - && b":                             "- map[] sh,-c,cd - && b 0",
		"cd && b":                               "- map[] sh,-c,cd && b 0",
		"cd a > x && b":                         "- map[] sh,-c,cd a > x && b 0",
		"make -j4 > out.log 2>&1":               "- map[] sh,-c,exec make -j4 > out.log 2>&1 0 output goes to out.log",
		"FOO=1 make 2>&1 >>out":                 "- map[] sh,-c,FOO=1 exec make 2>&1 >>out 0 output goes to out",
		"nohup ./run > /dev/null 2>&1 &":        "- map[] sh,-c,exec ./run > /dev/null 2>&1  0 output goes to /dev/null; left out: nohup, &",
		"make 2> err":                           "- map[] sh,-c,exec make 2> err 0",
		"cd 'x\ny' && a":                        "x\ny map[] a 0 cwd: /p/x y",
		"make < in":                             "- map[] sh,-c,exec make < in 0",
		"ls $HOME/x":                            "- map[] sh,-c,exec ls $HOME/x 0",
		"$HOME/bin/x 1":                         "- map[] sh,-c,exec $HOME/bin/x 1 0",
		"~/bin/x 1":                             "- map[] sh,-c,exec ~/bin/x 1 0",
		"$RUN 1":                                "- map[] sh,-c,$RUN 1 0",
		"echo $HOME":                            "- map[] sh,-c,echo $HOME 0",
		"exec node x.js":                        "- map[] sh,-c,exec node x.js 0",
		". ./env && run":                        "- map[] sh,-c,. ./env && run 0",
		"! a":                                   "- map[] sh,-c,! a 0",
		"a & b &":                               "- map[] sh,-c,a & b  0 & is named; left out: &",
		"a && b 2>&1 | tail -4":                 "- map[] sh,-c,a && b 2>&1  4 left out: | tail -4",
		"(a; b) 2>&1 | tail -4":                 "- map[] sh,-c,(a; b) 2>&1  4 left out: | tail -4",
		"a | tail -4; b":                        "- map[] sh,-c,a | tail -4; b 0",
		"for i in 1 2; do echo $i; done":        "- map[] sh,-c,for i in 1 2; do echo $i; done 0",
		"cat <<E | tail -3\nx\nE":               "- map[] sh,-c,exec cat <<E \nx\nE 3 left out: | tail -3",
		"a # b | c":                             "- map[] a 0",
		"a # x\nb":                              "- map[] sh,-c,a # x\nb 0",
		"a {b,c}":                               "- map[] bash,-c,exec a {b,c} 0",
		"a {b,c} $'x'":                          "- map[] bash,-c,exec a {b,c} $'x' 0",
		"[[ -f x ]] && a":                       "- map[] bash,-c,[[ -f x ]] && a 0",
		"source env/bin/activate && a":          "- map[] bash,-c,source env/bin/activate && a 0",
		"diff <(a) b":                           "- map[] bash,-c,exec diff <(a) b 0",
		"a &> out":                              "- map[] bash,-c,exec a &> out 0 output goes to out",
		"a <<< x":                               "- map[] bash,-c,exec a <<< x 0",
		"set -euo pipefail; a | b":              "- map[] bash,-c,set -euo pipefail; a | b 0 exit code is",
		"time make":                             "- map[] bash,-c,time make 0",
		`echo -e "a\tb" > x`:                    `- map[] bash,-c,echo -e "a\tb" > x 0 output goes to x`,
		"a ${X^^}":                              "- map[] bash,-c,exec a ${X^^} 0",
		"a $RANDOM":                             "- map[] bash,-c,exec a $RANDOM 0",
		"X=(1 2); a":                            "- map[] bash,-c,X=(1 2); a 0",
	} {
		l, err := Read(line, "/p").Line(true)
		notes := strings.NewReplacer("exit code is the last command's", "exit code is", "not needed, so ", "", "what stands before & has no state and no input here: start_group starts several", "& is named").Replace(strings.Join(l.Notes, "; "))
		got := strings.TrimSpace(fmt.Sprintf("%s %v %s %d %s", cmp.Or(l.Dir, "-"), l.Env, strings.Join(l.Argv, ","), l.Tail, notes))
		if err != nil || got != want {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", line, got, err, want)
		}
	}
}

// TestShellLinesDoWhatTheShellDoes checks that what a line becomes has the output and the
// exit code that the line has in bash.
func TestShellLinesDoWhatTheShellDoes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	project := t.TempDir()
	if err := os.MkdirAll(filepath.Join(project, "web", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(project, "web", "tool"), "echo \"$(pwd) $V $*\"\nexit ${CODE:-0}\n")
	for _, line := range []string{
		"cd web && ./tool a",
		"cd web; CODE=3 W=1 ./tool 'a b'",
		"(cd web && ./tool)",
		"cd web && cd deep && CODE=3 ../tool",
		"cd web && ./tool && ./tool b",
		"cd nowhere 2> out.log || echo stays",
		"CODE=4 web/tool 2>&1",
		"echo $V-$((1+2))-`echo x`-$(echo y)",
		"V=2 web/tool $HOME; echo $?",
		"for i in 1 2 3; do echo $i; done",
		"false && echo a || echo b",
		"false | true",
		"true | (exit 5)",
		"printf 'a\\nb\\n' | grep b | wc -l | tr -d ' '",
		"cat <<EOF\n$V x\nEOF",
		"cat <<'EOF' | sort -r\na\n$V\nEOF",
		"V=7 web/tool > out.log 2>&1; cat out.log",
		"echo web/*; ls web/to?l",
		"echo ~ ~/x",
		"V=3 CODE=6 web/tool < /dev/null",
		"! true",
		"exit 9",
		"echo a # b; echo c",
		"set -e; false; echo never",
		"export V=5; web/tool\n# comment\nweb/tool $V",
		"if [ -d web ]; then echo yes; else echo no; fi",
		"f() { echo in $1; }; f x",
		"while read a; do echo \"<$a>\"; done <<E\n1\n2\nE",
		"sh -c 'kill -TERM $$'",
		"V=$(echo 1) web/tool",
		"echo {a,b}{1..2}",
		"echo -e 'a\\tb' > out.log; cat out.log",
		"echo 'a\\nb' > out.log; cat out.log",
		"[[ abc == a* ]] && echo yes",
		"echo $'a\\tb'",
		"cat <<< hello",
		"set -o pipefail; false | true",
		"X=(1 2); echo ${X[1]} ${#X[@]}",
		"X=abc; echo ${X^^} ${X/b/x} ${X:1:1}",
		"diff <(echo a) <(echo b)",
		"for ((i=0;i<2;i++)); do echo $i; done",
		"source /dev/null && echo sourced",
		"if [ a == a ]; then echo same; fi",
		"web/tool &> out.log; cat out.log",
		"function f { echo g; }; f",
	} {
		run := func(dir string, env map[string]string, argv ...string) string {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = join(project, dir), append(os.Environ(), "V=env", "HOME="+project)
			for key, value := range env {
				cmd.Env = append(cmd.Env, key+"="+value)
			}
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				return err.Error()
			}
			return fmt.Sprintf("%s%s", out, cmd.ProcessState)
		}
		l, err := Read(line, project).Line(true)
		if err != nil {
			t.Errorf("%s: got %v, want no error", line, err)
			continue
		}
		if got, want := run(l.Dir, l.Env, l.Argv...), run("", nil, bash, "-c", line); got != want {
			t.Errorf("%s: got %q, want %q as in bash", line, got, want)
		}
	}
}

// TestParseStartsNoShellUnasked checks that with a list of allowed commands no line brings
// a shell in, and that no error advises one.
func TestParseStartsNoShellUnasked(t *testing.T) {
	for _, line := range []string{
		"a | b", "a && b", "a || b", "a; b", "a & b", "a > x", "a < x", "a >> x", "a 2> x", "a &> x", "a $X", "a ${X}", "a $(b)", "a `b`", `a "$(b)"`, "a ~/x", "~/x", "a *", "a ?", "a [x]",
		"a\nb", "a <<E\nx\nE", "a <<< x", "(a; b)", "{ a; b; }", "! a", "if a; then b; fi", "for i in 1; do a; done", "while a; do b; done", "f() { a; }; f", "[[ a ]]", "((1))", "time a", "a {b,c}", "a $'x'",
		"A=$(b) c", "A+=1 b", "A=$(b)", "cd x && a; b", "cd x && a $X", "cd $X && a", "nohup a > x &", "a | tail -5 | b", "a | tail -5 > x", "a 2>&1", "a 2>&1 > x", "(a)", "(a) | b", "(cd x && a > y)", "coproc a", "export A=1; b", "a <(b)", "a >(b)", "trap a EXIT; b",
	} {
		if l, err := Read(line, "/p").Line(false); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), `"sh"`) {
			t.Errorf("%s: got %+v, %v, want it refused without the advice of sh", line, l, err)
		}
		if l, err := Read(line, "/p").Line(true); err != nil || !slices.Contains([]string{"sh", "bash"}, l.Argv[0]) || l.Argv[1] != "-c" {
			t.Errorf("%s: got %+v, %v, want a shell", line, l, err)
		}
	}
	for line, want := range map[string]string{"cd x && a b | tail -5 &": "a b", "nohup a &": "a", "cd x; a": "a", "exec a": "exec a", "eval a": "eval a"} {
		if l, err := Read(line, "/p").Line(false); err != nil || strings.Join(l.Argv, " ") != want {
			t.Errorf("%s: got %+v, %v, want %s", line, l, err, want)
		}
	}
}

func TestParseRefusesWhatRunsNothing(t *testing.T) {
	for line, want := range map[string]string{
		"": "no command", "# x": "no command", "A=1": "no command", "cd web": "give the directory as cwd", "cd web &": "give the directory as cwd",
		"cd a && cd b": "give the directory as cwd", "cd a;": "give the directory as cwd", `echo "open`: "quote", "a &&": "&&", "a | | b": "|", "if a": "if",
	} {
		for _, shell := range []bool{true, false} {
			if l, err := Read(line, "/p").Line(shell); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %+v, %v, want an error with %q", line, l, err, want)
			}
		}
	}
}

// FuzzParse checks that a line that needs no shell is executed exactly as Split splits it,
// and that no line brings in a shell where none is allowed.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a 'b' \"c\" d\\ e", "A=1 b", "cd x && a | tail -5 &", "(a; b) 2>&1 | cat", "nohup a > b &", "a <<E\nx\nE", "{ a; }", "cd a && b & c", "a {b..c}", "a | head -n 5 # x", "a 2>&1 b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		env, argv, err := Read(line, "/").Split()
		for _, shell := range []bool{true, false} {
			l, parseErr := Read(line, "/").Line(shell)
			switch {
			case parseErr == nil && len(l.Argv) == 0:
				t.Errorf("%q: got neither a command nor an error, want one", line)
			case parseErr == nil && filepath.Clean(join("/", l.Dir)) != join("/", l.Dir):
				t.Errorf("%q: got directory %q, want it clean", line, l.Dir)
			case err == nil && (parseErr != nil || !slices.Equal(l.Argv, argv) || !maps.Equal(l.Env, env)) && argv[0] != "nohup" && !(shell && slices.Contains(shellOnly, argv[0])):
				t.Errorf("%q: got %+v, %v, want %q %q as without a shell", line, l, parseErr, env, argv)
			case !shell && parseErr == nil && l.Shell != "":
				t.Errorf("%q: got a shell, want none", line)
			}
		}
	})
}

func TestWordsNameTheFirstProgram(t *testing.T) {
	for line, want := range map[string]string{
		"npm run build": "npm run build", "A=1 npm ci -q": "npm ci -q", "cd web && make | tail": "make", "set -e; npm ci $X; npm test": "npm ci",
		"for i in 1 2; do echo $i; done": "echo", "exec node x.js > y": "node x.js", "[ -f x ] || exit 4": "[ -f x ]", "test -f x && run it": "run it",
		"$X a; b c": "b c", "a |": "", "A=$(date) b": "b", "sh -c 'a b'": "sh -c a b",
	} {
		if got := strings.Join(Read(line, "/p").Words(), " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
