package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pmcp/process/proctab"
)

// ParseAllowed reads a list of the absolute files and directories that
// executables may come from, as Options.Allowed takes it: commas between, spaces
// around them ignored. "" and a * in the list mean any, which is nil; a list
// without an entry is an error, for it may have been meant to allow nothing.
func ParseAllowed(list string) (allowed []string, err error) {
	for entry := range strings.SplitSeq(list, ",") {
		switch entry = strings.TrimSpace(entry); entry {
		case "":
		case "*":
			return nil, nil
		default:
			allowed = append(allowed, entry)
		}
	}
	if i := slices.IndexFunc(allowed, func(entry string) bool { return !filepath.IsAbs(entry) }); i >= 0 {
		return nil, fmt.Errorf("%q is not an absolute path", allowed[i])
	}
	if allowed == nil && list != "" {
		return nil, errors.New("want absolute files and directories with commas between, or * for any")
	}
	return allowed, nil
}

// executable is what a Spec's command means.
type executable struct {
	path  string // what is executed
	argv0 string // absolute, before symbolic links were resolved
}

// resolve finds what command means for a child in dir and PATH path, and
// checks that the list of allowed commands has it.
//
// With such a list, what was checked is what is executed: the file behind all
// symbolic links, so that a link cannot be exchanged between check and use
// (19 of 75 runs fooled a check of the link). A #! script is executed by the
// path it was found at, because many dispatch on $0; then both paths must be
// allowed.
func resolve(command, dir, path string, allowed []string) (executable, error) {
	found, err := lookup(command, dir, path)
	if err != nil || allowed == nil {
		return executable{path: found, argv0: found}, err
	}
	real, err := filepath.EvalSymlinks(found)
	if err != nil {
		return executable{}, fmt.Errorf("%w: %w", ErrNoExecutable, err)
	}
	if err := checkAllowed(found, real, allowed); err != nil {
		return executable{}, err
	}
	if !isScript(real) {
		return executable{path: real, argv0: found}, nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(found))
	if err != nil {
		return executable{}, fmt.Errorf("%w: %w", ErrNoExecutable, err)
	}
	place := filepath.Join(parent, filepath.Base(found))
	if err := checkAllowed(found, place, allowed); err != nil {
		return executable{}, err
	}
	return executable{path: place, argv0: found}, nil
}

// checkAllowed answers an error wrapping ErrNotAllowed unless file, which the
// command was found to mean, is one of allowed or below one of them, and is in
// a directory that strangers cannot write to.
func checkAllowed(found, file string, allowed []string) error {
	if !slices.ContainsFunc(allowed, func(entry string) bool { return contains(entry, file) }) {
		what := proctab.Printable(file) // a link of the project may lead anywhere
		if found != file {
			what = fmt.Sprintf("%s (found as %s)", what, found)
		}
		return fmt.Errorf("%w: PM_ALLOWED_COMMANDS has neither %s nor a directory above it; it has: %s", ErrNotAllowed, what, strings.Join(allowed, ", "))
	}
	for _, path := range []string{file, filepath.Dir(file)} {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoExecutable, err)
		}
		if info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
			return fmt.Errorf("%w: everybody may write to %s, so PM_ALLOWED_COMMANDS cannot vouch for what is there; chmod o-w it", ErrNotAllowed, proctab.Printable(path))
		}
	}
	return nil
}

// contains says whether file, resolved, is entry or below it. An entry may
// itself be a symbolic link.
func contains(entry, file string) bool {
	real, err := filepath.EvalSymlinks(entry)
	if err != nil {
		return false
	}
	for _, entry := range []string{filepath.Clean(entry), real} {
		// By path and not by prefix: /bin does not contain /bin-evil.
		rel, err := filepath.Rel(entry, file)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return true
		}
	}
	return false
}

// isScript says whether file begins with #!.
func isScript(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false // executable but not readable: no interpreter could read it
	}
	defer func() { _ = f.Close() }()
	magic := make([]byte, 2)
	_, err = io.ReadFull(f, magic)
	return err == nil && bytes.Equal(magic, []byte("#!"))
}

// undermining are the variables that make an allowed program run what is not
// allowed: of the loader, of shells, of interpreters and of what builds and
// fetches. A trailing * stands for any ending. HOME and XDG_CONFIG_HOME are
// not among them, though configuration found there can do the same: too much
// is rightly started with a home of its own.
var undermining = []string{
	"PATH", "LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH",
	"BASH_ENV", "BASH_FUNC_*", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "PROMPT_COMMAND", "ZDOTDIR", "SHELL",
	"NODE_OPTIONS", "NODE_PATH", npmConfig,
	"PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONUSERBASE", "PYTHONWARNINGS",
	"PERL5OPT", "PERL5LIB", "PERLLIB", "PERL5DB", "RUBYOPT", "RUBYLIB",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "DOTNET_STARTUP_HOOKS",
	"JAVA_HOME", "MAVEN_OPTS", "GRADLE_OPTS", "PHPRC", "LUA_INIT*",
	"MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "GOFLAGS", "RUSTC_WRAPPER", "CARGO_*",
	"OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES",
	"GIT_*", "TAR_OPTIONS", "RSYNC_RSH", "SSH_ASKPASS",
	"EDITOR", "VISUAL", "PAGER", "BROWSER", "LESSOPEN",
}

// npmConfig is the one that is known without regard to case, as by npm.
const npmConfig = "npm_config_*"

// checkAllowedEnv refuses the variables that would undermine a list of allowed
// commands, where there is one.
func checkAllowedEnv(env map[string]string, allowed []string) error {
	if allowed == nil {
		return nil
	}
	for key := range env {
		if slices.ContainsFunc(undermining, func(pattern string) bool {
			stem, open := strings.CutSuffix(pattern, "*")
			key := key
			if pattern == npmConfig {
				key = strings.ToLower(key)
			}
			return key == pattern || open && strings.HasPrefix(key, stem)
		}) {
			return fmt.Errorf("%w: env %s could make an allowed program run others, so it cannot be given while PM_ALLOWED_COMMANDS is set; leave it out, or set it where pmcp is configured", ErrNotAllowed, key)
		}
	}
	return nil
}
