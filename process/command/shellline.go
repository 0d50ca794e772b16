package command

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"pmcp/process/proctab"
)

// A Line is what a command line runs, and where.
type Line struct {
	Env  map[string]string // leading NAME=value words
	Argv []string          // the program and its arguments
	// Dir is the directory of a leading cd, absolute or relative to that of the line;
	// "" if there is none.
	Dir string
	// Tail is the number of lines that a dropped | tail would have shown; 0 if there
	// was none.
	Tail int
	// Shell is the shell that executes the line, or what Parse has left of it; "" if none
	// does.
	Shell string
	// Notes are short sentences on what is not as the line says. They are empty for a
	// line that is executed as it is.
	Notes []string
}

// maxEdits bounds how many parts of a line are left out.
const maxEdits = 20

// Line returns what the line runs. It leaves out what a process here does not need: a leading
// cd, which becomes Line.Dir, nohup, a final &, and a final | tail, less or more. What Split
// could then split is executed without a shell, anything else by sh -c, or by bash -c if it is
// written for bash. Unless shell is set, Line refuses that with an error wrapping ErrInvalid.
func (s Source) Line(shell bool) (Line, error) {
	switch {
	case s.whole:
		return Line{Argv: []string{s.text}}, nil
	case s.err != nil:
		return Line{}, s.err
	case shell || s.line.Shell == "":
		return s.line, nil
	}
	l := s.line
	env, argv, needs, _ := splitFile(s.rest, s.text)
	if needs != "" {
		return Line{}, fmt.Errorf("%w: command %q: %s needs a shell, and none is started while PM_ALLOWED_COMMANDS is set: give one program with its arguments", ErrInvalid, s.text, needs)
	}
	l.Shell, l.Env, l.Argv = "", env, argv // a builtin of shellOnly
	return l, nil
}

// readLine sets s.line and s.rest.
func (s *Source) readLine() (err error) {
	text, l, dropped := s.text, &s.line, []string(nil)
	s.rest = s.file
	for range maxEdits {
		e := findEdit(s.rest, text)
		if e.what == "" && e.text == "" {
			break
		}
		text, l.Tail = e.text, cmp.Or(l.Tail, e.tail)
		if e.dir != "" {
			l.Dir = join(l.Dir, e.dir)
		}
		if e.what != "" {
			dropped = append(dropped, e.what)
		}
		if s.rest, err = parse(text); err != nil {
			return err
		}
	}
	var needs string
	l.Env, l.Argv, needs, err = splitFile(s.rest, s.text)
	if err != nil {
		return err
	}
	if needs != "" || slices.Contains(shellOnly, l.Argv[0]) {
		l.Env = nil
		l.Shell, l.Argv, l.Notes = shellCommand(s.rest, text)
		if slices.ContainsFunc(s.rest.Stmts, func(s *syntax.Stmt) bool { return s.Background }) {
			l.Notes = append(l.Notes, "what stands before & has no state and no input here: start_group starts several")
		}
	}
	if len(dropped) > 0 {
		slices.Reverse(dropped) // they were found from the end of the line
		l.Notes = append(l.Notes, "not needed, so left out: "+strings.Join(dropped, ", "))
	}
	if l.Dir != "" {
		l.Notes = append(l.Notes, "cwd: "+join(s.dir, l.Dir))
	}
	for i := range l.Notes {
		l.Notes[i] = proctab.Printable(l.Notes[i])
	}
	return nil
}

// Words returns the literal words of the first program in the line, or of its first builtin if
// it runs no program, for a name. They end at the first word that a shell would expand.
func (s Source) Words() (words []string) {
	l, err := s.Line(true)
	if err != nil {
		return nil
	}
	if l.Shell == "" {
		return l.Argv
	}
	syntax.Walk(s.rest, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(words) > 0 && !slices.Contains(builtins, words[0]) {
			return true
		}
		if found := literalWords(call); len(words) == 0 || len(found) > 0 && !slices.Contains(builtins, found[0]) {
			words = found
		}
		return false
	})
	return words
}

// literalWords returns the words of call up to the first that a shell would expand, without
// exec.
func literalWords(call *syntax.CallExpr) (words []string) {
	for _, word := range call.Args {
		text, needs := literal(word, true)
		if needs != "" {
			break
		}
		if text != "exec" || len(words) > 0 {
			words = append(words, text)
		}
	}
	return words
}

func join(base, dir string) string {
	if filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	return filepath.Join(base, dir)
}

// An edit leaves out one part of a line. The zero edit changes nothing.
type edit struct {
	text string // the rest of the line
	what string // the part, as the answer names it; "" for cd
	dir  string // of a cd
	tail int    // of a | tail
}

// findEdit returns the next edit of text, which file is parsed from.
func findEdit(file *syntax.File, text string) edit {
	if len(file.Stmts) == 0 {
		return edit{}
	}
	if dir, rest := leadingCd(file); rest > 0 {
		return edit{text: text[rest:], dir: dir}
	}
	last := file.Stmts[len(file.Stmts)-1]
	if at := int(last.Semicolon.Offset()); last.Background && text[at] == '&' {
		return edit{text: text[:at] + text[at+1:], what: "&"}
	}
	last = rightmost(last, syntax.AndStmt, syntax.OrStmt)
	if pipe, ok := last.Cmd.(*syntax.BinaryCmd); ok && !last.Negated {
		for next, ok := pipe.Y.Cmd.(*syntax.BinaryCmd); ok; next, ok = pipe.Y.Cmd.(*syntax.BinaryCmd) {
			pipe = next
		}
		if tail, ok := isPager(pipe.Y); ok {
			from, to := int(pipe.OpPos.Offset()), int(pipe.Y.End().Offset())
			return edit{text: text[:from] + text[to:], what: strings.Join(strings.Fields(text[from:to]), " "), tail: tail}
		}
		return edit{}
	}
	if call, ok := last.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 1 && call.Args[0].Lit() == "nohup" && !strings.HasPrefix(call.Args[1].Lit(), "-") {
		return edit{text: text[:call.Args[0].Pos().Offset()] + text[call.Args[1].Pos().Offset():], what: "nohup"}
	}
	return edit{}
}

// rightmost returns the last of the commands that ops join in stmt.
func rightmost(stmt *syntax.Stmt, ops ...syntax.BinCmdOperator) *syntax.Stmt {
	for {
		cmd, ok := stmt.Cmd.(*syntax.BinaryCmd)
		if !ok || !slices.Contains(ops, cmd.Op) {
			return stmt
		}
		stmt = cmd.Y
	}
}

// leadingCd returns the literal directory of a cd at the start of file, and where the
// command after it begins; rest is 0 if there is none.
func leadingCd(file *syntax.File) (dir string, rest int) {
	first := file.Stmts[0]
	if first.Background && len(file.Stmts) > 1 {
		return "", 0 // cd has no effect on the next command
	}
	if len(file.Stmts) > 1 {
		rest = int(file.Stmts[1].Pos().Offset())
	}
	for {
		cmd, ok := first.Cmd.(*syntax.BinaryCmd)
		if !ok {
			break
		}
		first, rest = cmd.X, 0
		if cmd.Op == syntax.AndStmt {
			rest = int(cmd.Y.Pos().Offset())
		}
	}
	call, ok := first.Cmd.(*syntax.CallExpr)
	if !ok || rest == 0 || first.Negated || len(first.Redirs) > 0 || len(call.Assigns) > 0 || len(call.Args) != 2 || call.Args[0].Lit() != "cd" {
		return "", 0
	}
	dir, needs := literal(call.Args[1], true)
	if needs != "" || dir == "" || strings.HasPrefix(dir, "-") {
		return "", 0
	}
	return dir, rest
}

// tailCount matches the arguments of a tail that only count lines.
var tailCount = regexp.MustCompile(`^(?:-n ?|--lines[= ]|-)([1-9]\d{0,8})$`)

// isPager reports whether stmt only shows what it reads, page by page, or its end. tail is
// the number of lines that a tail shows. A tail is silent until its input ends: a server
// behind it would never get ready, a stop would lose all its lines, and tests that fail
// would exit with 0.
func isPager(stmt *syntax.Stmt) (tail int, ok bool) {
	call, isCall := stmt.Cmd.(*syntax.CallExpr)
	if !isCall || len(stmt.Redirs) > 0 || len(call.Assigns) > 0 {
		return 0, false
	}
	var words []string
	for _, word := range call.Args {
		words = append(words, word.Lit())
	}
	arguments := strings.Join(words[1:], " ")
	count := tailCount.FindStringSubmatch(arguments)
	switch name := words[0]; {
	case name == "less" || name == "more":
		return 0, arguments == ""
	case name != "tail" || arguments != "" && count == nil:
		return 0, false
	case count == nil:
		return 10, true
	default:
		tail, _ = strconv.Atoi(count[1])
		return tail, true
	}
}

// shellCommand returns how a shell executes text, which file is parsed from, and what the
// answer says about it. A single program replaces the shell, so that signals reach it.
func shellCommand(file *syntax.File, text string) (shell string, argv, notes []string) {
	shell = "sh"
	if isBash(file, text) {
		shell = "bash"
	}
	last := file.Stmts[len(file.Stmts)-1]
	if pipe, ok := rightmost(last, syntax.AndStmt, syntax.OrStmt).Cmd.(*syntax.BinaryCmd); ok && pipe != nil {
		notes = append(notes, "exit code is the last command's")
	}
	if len(file.Stmts) > 1 {
		return shell, []string{shell, "-c", text}, notes
	}
	if file := outputFile(last); file != "" {
		notes = append(notes, "output goes to "+file)
	}
	if call, ok := last.Cmd.(*syntax.CallExpr); ok && !last.Negated && isProgram(call) {
		at := call.Args[0].Pos().Offset()
		text = text[:at] + "exec " + text[at:]
	}
	return shell, []string{shell, "-c", text}, notes
}

// outputFile returns the file that a command writes its output to, or "".
func outputFile(stmt *syntax.Stmt) (name string) {
	for _, r := range stmt.Redirs {
		switch r.Op {
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
			if r.N == nil || r.N.Value == "1" {
				name, _ = literal(r.Word, true)
			}
		}
	}
	return name
}

// builtins are the commands that a shell executes itself. exec would not find them, or
// would find a program that differs.
var builtins = strings.Fields(`. : [ alias bg bind break builtin caller cd command compgen complete continue dirs disown echo enable
	eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd read readarray
	readonly return set shift shopt source suspend test times trap true type ulimit umask unalias unset wait`)

// shellOnly are the builtins that usually no program has the name of, and that do
// something when they are the whole line.
var shellOnly = strings.Fields(". command eval exec exit source type ulimit")

// isProgram reports whether call certainly runs a program rather than a builtin.
func isProgram(call *syntax.CallExpr) bool {
	if len(call.Args) == 0 {
		return false
	}
	if name, needs := literal(call.Args[0], true); needs == "" {
		return name != "" && !slices.Contains(builtins, name)
	}
	lit, ok := call.Args[0].Parts[len(call.Args[0].Parts)-1].(*syntax.Lit) // $HOME/bin/tool, ~/bin/tool
	return ok && strings.Contains(lit.Value, "/") && !hasGlob(lit.Value)
}
