// Package e2e tests the built binary as a client would: over its standard input and
// output. It contains only tests.
//
// A test creates a world (directories and an environment of its own), starts servers in
// it and talks to them:
//
//	w := newWorld(t)
//	s := w.start(t)
//	s.initialize(t)
//	r := s.tool(t, "start_process", args{"name": "web", "command": self(t), "args": program("http")})
//
// The world fails the test if a server writes anything but JSON-RPC messages to its
// output, reports a data race or a panic, does not exit, or leaves a process or a
// record behind.
package e2e
