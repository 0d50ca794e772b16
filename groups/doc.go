// Package groups starts and stops named sets of processes in the order of their
// dependencies.
//
// A Group is a definition: its members, their dependencies, and how the group is
// stopped. Definitions belong to a project, are stored by a Journal and outlive
// the session; a member may never have run. An invalid definition (a cycle, a
// dependency on a process that is not a member) is rejected when it is written.
//
// Start and Stop are operations: each continues when its caller stops waiting, and
// a second caller joins it. A member starts once all conditions that it depends on
// hold; a member that fails blocks its dependents. Restarting a process later does
// not affect its dependents.
//
// Members that another server of the project runs count as running and are left
// to that server.
//
// The package does not know how a process is started (see Starter) or how health
// is checked (see Health).
package groups
