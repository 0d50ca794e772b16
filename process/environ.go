package process

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Marks in the environment of every child, by which the registry recognises
// what a dead server left running.
const (
	EnvSession = "PMCP_SESSION" // the session id of the server
	EnvRun     = "PMCP_RUN"     // the run id
)

// environ builds the environment of a child: base, less what describes a
// terminal that the child does not have, then defaults that keep output free
// of colour and of buffering, then what the caller wants, then the marks.
func environ(base []string, own map[string]string, dir, session string, run int64) []string {
	env := make(map[string]string, len(base)+len(own)+6)
	for _, entry := range base {
		if key, value, ok := strings.Cut(entry, "="); ok && key != "" {
			env[key] = value
		}
	}
	// node warns on stderr where NO_COLOR and FORCE_COLOR are both set.
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
	env[EnvSession] = session
	env[EnvRun] = strconv.FormatInt(run, 10)

	entries := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		entries = append(entries, key+"="+env[key])
	}
	return entries
}

// lookupEnv returns the last value of key in entries of the form key=value.
func lookupEnv(entries []string, key string) string {
	for _, entry := range slices.Backward(entries) {
		if value, ok := strings.CutPrefix(entry, key+"="); ok {
			return value
		}
	}
	return ""
}
