package command

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// bashCommands are the commands that bash has and a POSIX shell has not.
var bashCommands = strings.Fields("bind builtin caller compgen complete dirs disown enable help history let mapfile popd pushd readarray shopt source suspend")

// bashVariables are the variables that bash sets and a POSIX shell does not.
var bashVariables = strings.Fields("BASH BASHPID BASH_SOURCE BASH_VERSION EPOCHSECONDS EUID HOSTNAME HOSTTYPE OSTYPE PIPESTATUS RANDOM SECONDS SHLVL UID")

// isBash reports whether text, which file was parsed from as bash, needs bash: a POSIX shell refuses
// it, or understands something else. Command lines are mostly written for bash, whereas sh
// is often another shell.
func isBash(file *syntax.File, text string) bool {
	if interpreter, _, _ := strings.Cut(text, "\n"); strings.HasPrefix(interpreter, "#!") && strings.Contains(interpreter, "bash") {
		return true
	}
	if _, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), ""); err != nil {
		return true
	}
	found := false
	syntax.Walk(file, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.TestClause, *syntax.TimeClause, *syntax.LetClause, *syntax.CoprocClause, *syntax.ExtGlob, *syntax.ProcSubst, *syntax.ArithmCmd:
			found = true
		case *syntax.SglQuoted:
			found = found || node.Dollar
		case *syntax.DblQuoted:
			found = found || node.Dollar
		case *syntax.FuncDecl:
			found = found || node.RsrvWord
		case *syntax.BinaryCmd:
			found = found || node.Op == syntax.PipeAll
		case *syntax.Redirect:
			found = found || node.Op == syntax.RdrAll || node.Op == syntax.AppAll || node.Op == syntax.WordHdoc
		case *syntax.DeclClause:
			found = found || node.Variant.Value != "export" && node.Variant.Value != "readonly"
		case *syntax.ParamExp:
			found = found || node.Param != nil && slices.Contains(bashVariables, node.Param.Value)
		case *syntax.CallExpr:
			found = found || isBashCall(node)
		}
		return !found
	})
	return found
}

// isBashCall reports whether a POSIX shell would execute call differently: echo expands
// backslashes, [ has no ==, and words have no braces to expand.
func isBashCall(call *syntax.CallExpr) bool {
	name := ""
	for i, word := range call.Args {
		var text strings.Builder
		_ = syntax.NewPrinter().Print(&text, word) // cannot fail for a word that was parsed
		arg := text.String()
		if i == 0 {
			name = arg
		}
		switch {
		case hasBraces(word),
			i == 0 && slices.Contains(bashCommands, name),
			i > 0 && name == "echo" && (strings.Contains(arg, `\`) || i == 1 && strings.HasPrefix(arg, "-") && strings.Contains(arg, "e")),
			(name == "[" || name == "test") && arg == "==",
			name == "set" && arg == "pipefail":
			return true
		}
	}
	return false
}

// hasBraces reports whether bash expands braces in word: {a,b} or {1..3}.
func hasBraces(word *syntax.Word) bool {
	copied := *word
	copied.Parts = slices.Clone(word.Parts)
	return syntax.SplitBraces(&copied)
}
