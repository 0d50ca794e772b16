// Package health checks on a schedule whether running processes work: by a
// command, a TCP connection or an HTTP request.
//
// Set configures the checks of a Monitor, which follows runs through the process
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
// A check that hangs is ended at its timeout, with every process that its command
// started, and never delays another check. Set rejects a check that could never
// succeed. The package itself never kills or restarts a watched process.
//
// A run is checked every second until it has been healthy once, then every
// Interval. The checks of different processes are spread over time, and a process
// is never checked twice at once. The package does not know how a process is restarted: a
// process that becomes unhealthy is handed to the manager's restart policy, once
// per streak of failures.
package health
