package command

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

// ParseAllowed returns the entries of a list of absolute files and directories that
// executables may come from. Commas separate the entries, and spaces around them are
// ignored. For "" and for a list with a *, which allow everything, it returns nil. A list
// without an entry is an error, since it may have been meant to allow nothing.
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

// An Executable is the program that a command stands for.
type Executable struct {
	Path  string // what is executed
	Argv0 string // absolute, before symbolic links were resolved
}

// Resolve returns the executable that command stands for in a child with working directory dir
// and PATH path. Unless allowed is nil, Resolve fails if allowed does not contain the
// executable.
//
// With a list of allowed files, Resolve returns the file that it has checked: the one behind
// all symbolic links, so that a link cannot be exchanged between check and use (in 19 of 75
// runs, that bypassed a check of the link). A #! script is executed by the path at which it
// was found, because many scripts dispatch on $0; then both paths must be allowed.
func Resolve(command, dir, path string, allowed []string) (Executable, error) {
	found, err := lookup(command, dir, path)
	if err != nil || allowed == nil {
		return Executable{Path: found, Argv0: found}, err
	}
	real, err := filepath.EvalSymlinks(found)
	if err != nil {
		return Executable{}, fmt.Errorf("%w: %w", ErrNoExecutable, err)
	}
	if err := checkAllowed(found, real, allowed); err != nil {
		return Executable{}, err
	}
	if !isScript(real) {
		return Executable{Path: real, Argv0: found}, nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(found))
	if err != nil {
		return Executable{}, fmt.Errorf("%w: %w", ErrNoExecutable, err)
	}
	place := filepath.Join(parent, filepath.Base(found))
	if err := checkAllowed(found, place, allowed); err != nil {
		return Executable{}, err
	}
	return Executable{Path: place, Argv0: found}, nil
}

// checkAllowed returns an error wrapping ErrNotAllowed unless file, which the command stands
// for, is one of allowed or below one of them, and neither the file nor its directory can be
// written to by every user.
func checkAllowed(found, file string, allowed []string) error {
	if !slices.ContainsFunc(allowed, func(entry string) bool { return contains(entry, file) }) {
		what := proctab.Printable(file) // a symbolic link in the project may lead anywhere
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
			return fmt.Errorf("%w: any user may write to %s, so PM_ALLOWED_COMMANDS cannot vouch for its content; chmod o-w it", ErrNotAllowed, proctab.Printable(path))
		}
	}
	return nil
}

// contains reports whether file, a resolved path, is entry or below it. The entry may itself
// be a symbolic link.
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

// isScript reports whether file begins with #!.
func isScript(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false // the file is executable but not readable: no interpreter could read it
	}
	defer func() { _ = f.Close() }()
	magic := make([]byte, 2)
	_, err = io.ReadFull(f, magic)
	return err == nil && bytes.Equal(magic, []byte("#!"))
}

// undermining are the variables that can make an allowed program run others: those of the
// loader, of shells, of interpreters, and of programs that build, fetch or log in. A trailing
// * stands for any ending. HOME and XDG_CONFIG_HOME are not among them, though configuration
// found there can do the same: too many programs are rightly started with a home of their own.
var undermining = []string{
	"PATH", "LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH",
	"BASH_ENV", "BASH_FUNC_*", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "PROMPT_COMMAND", "ZDOTDIR", "SHELL",
	"NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "ESBUILD_BINARY_PATH", npmConfig,
	"PYTHONSTARTUP", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE", "PYTHONHOME", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONUSERBASE", "PYTHONWARNINGS",
	"PERL5OPT", "PERL5LIB", "PERLLIB", "PERL5DB", "RUBYOPT", "RUBYLIB", "GEM_HOME", "GEM_PATH", "BUNDLE_GEMFILE",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "DOTNET_STARTUP_HOOKS", "DOTNET_ROOT", "CORECLR_*",
	"JAVA_HOME", "JAVA_OPTS", "MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_OPTS", "PHPRC", "PHP_INI_SCAN_DIR", "LUA_INIT*", "ERL_*",
	"MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "CC", "CXX", "CPP", "LD", "AR", "FC",
	"GOFLAGS", "GOENV", "GOROOT", "GOTOOLCHAIN", "GOCACHEPROG", "GOPACKAGESDRIVER", "CGO_*", "RUSTC*", "RUSTDOC*", "RUSTFLAGS", "RUSTUP_*", "CARGO_*",
	"KUBECONFIG", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "DOCKER_CONFIG",
	"OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES",
	"GIT_*", "TAR_OPTIONS", "RSYNC_RSH", "SSH_ASKPASS", "SUDO_ASKPASS",
	"EDITOR", "VISUAL", "KUBE_EDITOR", "PSQL_EDITOR", "SUDO_EDITOR", "PAGER", "AWS_PAGER", "MANPAGER", "PSQL_PAGER", "SYSTEMD_PAGER", "PSQLRC", "BROWSER", "LESSOPEN",
}

// npmConfig is the only pattern that ignores case, as npm does.
const npmConfig = "npm_config_*"

// CheckAllowedEnv returns an error wrapping ErrNotAllowed if env has a variable that would
// undermine the list of allowed commands. Without a list it returns nil.
func CheckAllowedEnv(env map[string]string, allowed []string) error {
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
