package ports

import (
	"regexp"
	"strings"
)

// template matches {PORT} and {api.PORT}, with the bytes around it that make it
// something else: ${PORT} is the shell's, and {{PORT}} that of another program.
var template = regexp.MustCompile(`[${]?\{((?:[A-Za-z0-9][A-Za-z0-9._:@-]*\.)?[A-Za-z_][A-Za-z0-9_]*)\}`)

// Expand returns text with every {PORT} and {api.PORT} replaced for which value returns
// a text. process is "" for the former. Other braces, ${PORT} and {{PORT}} stay.
func Expand(text string, value func(process, variable string) (text string, ok bool)) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return template.ReplaceAllStringFunc(text, func(found string) string {
		if !strings.HasPrefix(found, "{") || strings.HasPrefix(found, "{{") {
			return found
		}
		process, variable := "", strings.Trim(found, "{}")
		if i := strings.LastIndexByte(variable, '.'); i >= 0 {
			process, variable = variable[:i], variable[i+1:]
		}
		if text, ok := value(process, variable); ok {
			return text
		}
		return found
	})
}
