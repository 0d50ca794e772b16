// Package args decodes the arguments of a tool call into the struct that declares
// them, and returns what the tool's JSON schemas are made of.
//
// It accepts only what the struct declares. An error names the argument, what is
// wrong with it and what is allowed; an unknown name is refused with the nearest
// known one. What can only mean one thing is taken as that: a number where a text is
// wanted, several names in an array. A placeholder (null, "", [], {}) means "not given", and is refused
// where omitting the argument would destroy more. The package knows no tool and has no
// side effects.
package args
