//go:build !linux && !darwin

package proctab

// pmcp rests on process groups, signals and a readable process table. The next
// line does not compile elsewhere, and its name is the error message.
var _ = pmcp_runs_on_Linux_and_macOS_only_not_on_this_platform
