// Package health checks whether running processes do their work: by a command,
// by a TCP connection or by an HTTP request, on a schedule.
//
// A Monitor is told what to check by Set and learns of runs by the process
// manager's feed. Each watched run has a state:
//
//	          no run                            run begins
//	unknown ◄──────── (any)          unknown ─────────────► starting
//
//	          a check succeeds                   Retries failures in a row
//	starting ─────────────────► healthy ───────────────────────────────► unhealthy
//	    │                          ▲                                        │ ▲
//	    │                          └────────── a check succeeds ────────────┘ │
//	    └── Retries failures in a row, none of them within StartPeriod ──────┘
//
// What the package guarantees: a check that hangs is ended at its timeout, with
// everything its command started, and never holds up another. What it refuses: a
// check that could never succeed, when it is set and in the words of the tools
// (Spec.Validate); it never kills or restarts anything itself.
//
// Until a run has been healthy once it is checked every second, then every
// Interval. The ticks of different processes are spread, and a process is never
// checked twice at once. How a process is restarted is not known here: one that
// becomes unhealthy is handed to the manager's restart policy, once per streak
// of failures.
package health
