// Package groups starts and stops named sets of processes in the order of their
// dependencies.
//
// A Group is a definition: members, what each depends on, how the group is
// stopped. Definitions belong to a project, are kept by a Journal and outlive
// the session; a member may never have run. What does not fit (a cycle, a
// dependency on what is no member) is refused when it is written.
//
// Start and Stop are operations that go on when their caller gives up waiting,
// and that a second caller joins. A member starts once all conditions it depends
// on hold; one that fails keeps what depends on it from starting. Restarting a
// process later does nothing to what depends on it.
//
// What another server of the project runs is left to it, and counts as running.
//
// How a process is started is not known here (Starter), nor how health is
// checked (Health).
package groups
