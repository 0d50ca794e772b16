package registry_test

import (
	"fmt"
	"os"

	"pmcp/registry"
)

// A server is alive as long as its lock is held, whatever its record says.
func Example() {
	dir, err := os.MkdirTemp("", "registry-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	const id = "0b5c9d0e-4f2e-4b0e-9d62-0f8f2f1f7a11"

	lock, err := registry.Prepare(dir, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := registry.Publish(lock, dir, id); err != nil {
		fmt.Println(err)
		return
	}
	registration, err := registry.Register(dir, id, registry.Describe(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	entries, err := registry.List(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range entries {
		fmt.Println(e.State, "we are the server:", e.Record.Server.PID == os.Getpid())
	}

	fmt.Println("alive:", registry.Alive(dir, id))
	fmt.Println(registration.Close(), lock.Close())
	fmt.Println("alive:", registry.Alive(dir, id))
	// Output:
	// live we are the server: true
	// alive: true
	// <nil> <nil>
	// alive: false
}
