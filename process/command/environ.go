package command

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"pmcp/process/proctab"
)

// defaults are the variables of every child that neither pmcp's environment nor its own sets.
// They turn off colour and the buffering of output. AI_AGENT says that an agent reads the output:
// dev servers then forward the browser's console, for example. Astro, which would start a server in
// the background for an agent, stays in the foreground if its two variables have any value. Playwright
// would serve its report after failed tests instead of exiting, and npm would announce its new versions.
var defaults = map[string]string{
	"NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "AI_AGENT": "pmcp",
	"ASTRO_DEV_BACKGROUND": "0", "ASTRO_PREVIEW_BACKGROUND": "0",
	"PLAYWRIGHT_HTML_OPEN": "never", "npm_config_update_notifier": "false",
}

// terminal are the variables that describe the terminal of pmcp's user, which no child has: nobody
// there presses a key of a pager.
var terminal = map[string]string{"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}

// HasDefault reports whether Environ gives the variable key to a child that does not set it.
func HasDefault(key string) bool { return defaults[key] != "" }

// Inherited returns what a child in dir has without variables of its own: base with other variables of a terminal, and then
// the defaults.
func Inherited(base []string, dir string) map[string]string {
	env := make(map[string]string, len(base)+len(defaults)+len(terminal)+1)
	for _, entry := range base {
		if key, value, ok := strings.Cut(entry, "="); ok && key != "" {
			env[key] = value
		}
	}
	// node warns on stderr if NO_COLOR and FORCE_COLOR are both set.
	delete(env, "FORCE_COLOR")
	delete(env, "CLICOLOR_FORCE")
	maps.Copy(env, terminal)
	for key, value := range defaults {
		if _, set := env[key]; !set {
			env[key] = value
		}
	}
	env["PWD"] = dir
	return env
}

// Environ returns the environment of a child: what it inherits; then the caller's own variables, of which an empty one
// removes a default; then the marks of session and run. Later values replace earlier ones.
func Environ(base []string, own map[string]string, dir, session string, run int64) []string {
	env := Inherited(base, dir)
	maps.Copy(env, own)
	maps.DeleteFunc(env, func(key, value string) bool { return value == "" && HasDefault(key) })
	env[proctab.EnvSession] = session
	env[proctab.EnvRun] = strconv.FormatInt(run, 10)

	entries := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		entries = append(entries, key+"="+env[key])
	}
	return entries
}
