package command

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"mvdan.cc/sh/v3/syntax"
)

// A Source is a command line, as a person would type it, that was parsed for a directory. Its
// methods do not parse it again. The zero value is a line that was not parsed.
type Source struct {
	text, dir string
	whole     bool         // the line is the path of a file
	file      *syntax.File // nil if it cannot be parsed
	rest      *syntax.File // what is left of it
	line      Line         // what it runs where a shell may be started
	err       error        // why it runs nothing
}

// Parsed counts what was parsed: a command line, and what is left of it after each part that is
// left out. Tests read it.
var Parsed atomic.Int64

// Read parses a command line that dir is the directory of. What is wrong with it, the methods
// that need it return.
//
// A line that is exactly the path of a file, absolute or relative to dir, is not split, so
// that a path with spaces needs no quotes.
func Read(line, dir string) Source {
	s := Source{text: line, dir: dir, whole: isFile(line, dir)}
	if s.file, s.err = parse(line); s.err == nil && !s.whole {
		s.err = s.readLine()
	}
	return s
}

// Is reports whether s was read from that line for that directory.
func (s Source) Is(line, dir string) bool {
	return s.text == line && s.dir == dir && (s.file != nil || s.err != nil)
}

// Split splits the line by the quoting rules of a shell but without running one. Leading
// NAME=value words become env, the rest argv. For a line that only a shell could run it
// returns an error wrapping ErrInvalid.
func (s Source) Split() (env map[string]string, argv []string, err error) {
	switch {
	case s.whole:
		return nil, []string{s.text}, nil
	case s.file == nil:
		return nil, nil, s.err
	}
	env, argv, needs, err := splitFile(s.file, s.text)
	if needs != "" {
		err = fmt.Errorf("%w: command %q: %s needs a shell", ErrInvalid, s.text, needs)
	}
	return env, argv, err
}

// Assigned returns the literal values that the line gives to variables, wherever a shell would
// execute it. Of several values of one variable, all are in the list.
func (s Source) Assigned() (values map[string][]string) {
	if s.file == nil {
		return nil
	}
	values = make(map[string][]string)
	syntax.Walk(s.file, func(node syntax.Node) bool {
		if assign, ok := node.(*syntax.Assign); ok && assign.Name != nil && assign.Value != nil {
			if value, needs := literal(assign.Value, false); needs == "" {
				values[assign.Name.Value] = append(values[assign.Name.Value], value)
			}
		}
		return true
	})
	return values
}

// isFile reports whether line, which has spaces, is the path of a file.
func isFile(line, dir string) bool {
	if !strings.Contains(line, "/") || !strings.ContainsAny(line, " \t") {
		return false
	}
	file := line
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular()
}

func parse(line string) (*syntax.File, error) {
	Parsed.Add(1)
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, fmt.Errorf("%w: command %q: %w", ErrInvalid, line, err)
	}
	return file, nil
}

// splitFile splits the one simple command that file, parsed from line, consists of. For
// any other file it returns what in it needs a shell. For a file without a command it
// returns an error.
func splitFile(file *syntax.File, line string) (env map[string]string, argv []string, needs string, err error) {
	call, needs := simpleCall(file)
	if needs != "" {
		return nil, nil, needs, nil
	}
	if call == nil || len(call.Args) == 0 && !slices.ContainsFunc(call.Assigns, isExpanded) {
		return nil, nil, "", fmt.Errorf("%w: command %q holds no command", ErrInvalid, line)
	}
	if len(call.Args) > 0 && call.Args[0].Lit() == "cd" {
		return nil, nil, "", fmt.Errorf("%w: command %q: cd changes nothing for a process of its own: give the directory as cwd", ErrInvalid, line)
	}
	env = make(map[string]string, len(call.Assigns))
	for _, assign := range call.Assigns {
		if isExpanded(assign) {
			return nil, nil, "an assignment that is not NAME=value", nil
		}
		env[assign.Name.Value] = ""
		if assign.Value != nil {
			env[assign.Name.Value], _ = literal(assign.Value, false)
		}
	}
	for _, word := range call.Args {
		arg, needs := literal(word, true)
		if needs != "" {
			return nil, nil, needs, nil
		}
		argv = append(argv, arg)
	}
	return env, argv, "", nil
}

// isExpanded reports whether only a shell can evaluate assign.
func isExpanded(assign *syntax.Assign) bool {
	needs := ""
	if assign.Value != nil {
		_, needs = literal(assign.Value, false)
	}
	return assign.Append || assign.Array != nil || assign.Index != nil || needs != ""
}

// simpleCall returns the one simple command that file consists of, or else what needs a
// shell. It returns neither for an empty file.
func simpleCall(file *syntax.File) (call *syntax.CallExpr, needs string) {
	switch {
	case len(file.Stmts) == 0:
		return nil, ""
	case len(file.Stmts) > 1:
		return nil, "more than one command"
	}
	stmt := file.Stmts[0]
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		call = cmd
	case *syntax.BinaryCmd:
		return nil, cmd.Op.String()
	case nil: // a redirection alone
		return nil, stmt.Redirs[0].Op.String()
	default:
		return nil, "shell syntax"
	}
	switch {
	case stmt.Background:
		return nil, "&"
	case len(stmt.Redirs) > 0:
		return nil, stmt.Redirs[0].Op.String()
	case stmt.Negated:
		return nil, "!"
	}
	return call, ""
}

// literal returns the text that word stands for, or what in it only a shell could expand. If
// globs is set, that includes * ? [ and {.
func literal(word *syntax.Word, globs bool) (text, needs string) {
	var b strings.Builder
	for i, part := range word.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if i == 0 && (part.Value == "~" || strings.HasPrefix(part.Value, "~/")) {
				return "", "~"
			}
			if globs && hasGlob(part.Value) {
				return "", "a pattern (* ? [ {)"
			}
			b.WriteString(unescape(part.Value, ""))
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", "$'…'"
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return "", expansion(inner)
				}
				b.WriteString(unescape(lit.Value, "$`\"\\\n"))
			}
		default:
			return "", expansion(part)
		}
	}
	return b.String(), ""
}

// expansion names an expansion.
func expansion(part syntax.WordPart) string {
	switch part.(type) {
	case *syntax.ParamExp:
		return "$NAME"
	case *syntax.CmdSubst:
		return "command substitution"
	default:
		return "an expansion"
	}
}

// hasGlob reports whether an unquoted literal contains a pattern or a brace list that a shell
// would expand. A backslash protects the byte after it.
func hasGlob(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '*', '?':
			return true
		case '[':
			if strings.Contains(s[i:], "]") {
				return true
			}
		case '{':
			if rest := s[i:]; strings.Contains(rest, "}") && (strings.Contains(rest, ",") || strings.Contains(rest, "..")) {
				return true
			}
		}
	}
	return false
}

// unescape returns s without the backslashes before a byte of special, or without all if
// special is "". A backslash and a newline stand for nothing.
func unescape(s, special string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (special == "" || strings.IndexByte(special, s[i+1]) >= 0) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
