package command

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"pmcp/process/proctab"
)

// Environ returns the environment of a child: base without the variables of a terminal, which
// the child does not have; then defaults that turn off colour and buffering of output; then the
// caller's own variables; then the marks of session and run. Later values replace earlier ones.
func Environ(base []string, own map[string]string, dir, session string, run int64) []string {
	env := make(map[string]string, len(base)+len(own)+6)
	for _, entry := range base {
		if key, value, ok := strings.Cut(entry, "="); ok && key != "" {
			env[key] = value
		}
	}
	// node warns on stderr if NO_COLOR and FORCE_COLOR are both set.
	delete(env, "FORCE_COLOR")
	delete(env, "CLICOLOR_FORCE")
	env["TERM"] = "dumb"
	for key, value := range map[string]string{"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"} {
		if _, set := env[key]; !set {
			env[key] = value
		}
	}
	env["PWD"] = dir
	maps.Copy(env, own)
	env[proctab.EnvSession] = session
	env[proctab.EnvRun] = strconv.FormatInt(run, 10)

	entries := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		entries = append(entries, key+"="+env[key])
	}
	return entries
}

// LookupEnv returns the last value of key in entries of the form key=value.
func LookupEnv(entries []string, key string) string {
	for _, entry := range slices.Backward(entries) {
		if value, ok := strings.CutPrefix(entry, key+"="); ok {
			return value
		}
	}
	return ""
}
