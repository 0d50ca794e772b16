package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// SplitCommandLine takes a command line as a person would type it apart, by the
// quoting rules of a shell but without one: leading NAME=value words become
// env, the rest argv. What only a shell could do is refused with an error,
// wrapping ErrInvalid, that says what to do instead.
//
// A line that is exactly the path of an executable in dir is taken whole, so
// that a path with spaces needs no quotes.
func SplitCommandLine(line, dir string) (env map[string]string, argv []string, err error) {
	if strings.Contains(line, "/") && strings.ContainsAny(line, " \t") {
		file := line
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return nil, []string{line}, nil
		}
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, nil, fmt.Errorf("%w: command %q: %w", ErrInvalid, line, err)
	}
	call, hint := simpleCall(file)
	if hint != "" {
		return nil, nil, fmt.Errorf("%w: command %q: %s", ErrInvalid, line, hint)
	}
	env = make(map[string]string, len(call.Assigns))
	for _, assign := range call.Assigns {
		value, hint := "", ""
		if assign.Value != nil {
			value, hint = literal(assign.Value, false)
		}
		if assign.Append || assign.Array != nil || assign.Index != nil || hint != "" {
			return nil, nil, fmt.Errorf("%w: command %q: %s", ErrInvalid, line, hintShell("an assignment that is not NAME=value"))
		}
		env[assign.Name.Value] = value
	}
	for _, word := range call.Args {
		arg, hint := literal(word, true)
		if hint != "" {
			return nil, nil, fmt.Errorf("%w: command %q: %s", ErrInvalid, line, hint)
		}
		argv = append(argv, arg)
	}
	if len(argv) == 0 {
		return nil, nil, fmt.Errorf("%w: command %q holds no command", ErrInvalid, line)
	}
	return env, argv, nil
}

// hintShell is the advice for what only a shell can do.
func hintShell(what string) string {
	return what + ` needs a shell: use command: "sh", args: ["-c", "…"]`
}

// simpleCall returns the one plain command that file consists of, or a hint.
func simpleCall(file *syntax.File) (call *syntax.CallExpr, hint string) {
	switch {
	case len(file.Stmts) == 0:
		return nil, "it holds no command"
	case len(file.Stmts) > 1:
		return nil, hintShell("more than one command")
	}
	stmt := file.Stmts[0]
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		call = cmd
	case *syntax.BinaryCmd:
		return nil, hintBinary(cmd)
	default:
		return nil, hintShell("shell syntax")
	}
	name := ""
	if len(call.Args) > 0 {
		name = call.Args[0].Lit()
	}
	switch {
	case name == "nohup" || stmt.Background:
		return nil, "nohup and & are not needed: a process started here runs in the background until it is stopped; leave them out"
	case len(stmt.Redirs) > 0:
		return nil, hintRedirect(stmt.Redirs)
	case stmt.Negated:
		return nil, hintShell("!")
	case name == "cd":
		return nil, "cd changes nothing for a process of its own: give the directory as cwd"
	}
	return call, ""
}

// hintBinary is the advice for two commands joined by an operator.
func hintBinary(cmd *syntax.BinaryCmd) string {
	if left, ok := cmd.X.Cmd.(*syntax.CallExpr); ok && cmd.Op == syntax.AndStmt && len(left.Args) > 0 && left.Args[0].Lit() == "cd" {
		return "leave out cd … && and give the directory as cwd"
	}
	if right, ok := cmd.Y.Cmd.(*syntax.CallExpr); ok && cmd.Op == syntax.Pipe && len(right.Args) > 0 {
		switch name := right.Args[0].Lit(); name {
		case "tail", "head", "grep", "less", "more", "cat", "tee":
			return fmt.Sprintf("| %s is not needed: all output is kept and can be read, followed and searched; leave it out", name)
		}
	}
	return hintShell(cmd.Op.String())
}

// hintRedirect is the advice for redirections.
func hintRedirect(redirs []*syntax.Redirect) string {
	for _, r := range redirs {
		if r.Op != syntax.DplOut { // 2>&1
			return hintShell("redirection (" + r.Op.String() + ")")
		}
	}
	return "2>&1 is not needed: stdout and stderr are both kept, each line marked with its stream; leave it out"
}

// literal returns the text that word stands for, or a hint if only a shell
// could tell. globs says whether * ? [ are refused too.
func literal(word *syntax.Word, globs bool) (text, hint string) {
	var b strings.Builder
	for i, part := range word.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if i == 0 && (part.Value == "~" || strings.HasPrefix(part.Value, "~/")) {
				return "", hintShell("~")
			}
			if globs && hasGlob(part.Value) {
				return "", hintShell("a pattern (* ? [ {)")
			}
			b.WriteString(unescape(part.Value))
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", hintShell("$'…'")
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return "", hintExpansion(inner)
				}
				b.WriteString(unescapeQuoted(lit.Value))
			}
		default:
			return "", hintExpansion(part)
		}
	}
	return b.String(), ""
}

func hintExpansion(part syntax.WordPart) string {
	switch part.(type) {
	case *syntax.ParamExp:
		return hintShell("$NAME (or give its value, or set it in env)")
	case *syntax.CmdSubst:
		return hintShell("command substitution")
	default:
		return hintShell("expansion")
	}
}

// hasGlob says whether an unquoted literal holds a pattern or a brace list
// that a shell would expand; a backslash protects the byte behind it.
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

// unescape removes the backslashes of an unquoted literal.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// unescapeQuoted removes the backslashes that mean something within double
// quotes: those before $ ` " \ and newline.
func unescapeQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
