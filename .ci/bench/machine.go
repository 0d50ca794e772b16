package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// describeMachine returns a description of the machine and how busy it is.
func describeMachine() string {
	return fmt.Sprintf("%s, %d cores, %s, %s, %s. Load average at the start: %s. Measured %s%s.",
		after("/proc/cpuinfo", "model name"), runtime.NumCPU(), output("uname", "-sr"), runtime.Version(), fileSystem(),
		load(), time.Now().Format(time.DateOnly), commit())
}

// after returns the text after a word and a colon in a file.
func after(file, word string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == word {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func output(name string, args ...string) string {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown " + name
	}
	return strings.TrimSpace(string(text))
}

// fileSystem returns the type of the file system for temporary files, which holds the
// databases.
func fileSystem() string {
	fields := strings.Fields(output("df", "-PT", os.TempDir()))
	if len(fields) < 9 {
		return "unknown file system"
	}
	return fields[len(fields)-6]
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// commit returns the measured commit as text for the description, or "".
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return " at " + strings.TrimSpace(string(text))
}
