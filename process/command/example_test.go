package command_test

import (
	"fmt"

	"pmcp/process/command"
)

// Split splits a command line as a shell would, and refuses one that needs a shell.
func ExampleSplit() {
	env, argv, err := command.Split(`PORT=3000 node "my server.js" --watch`, "/srv/shop")
	fmt.Printf("%q %q %v\n", env, argv, err)
	_, _, err = command.Split("make && ./run", "/srv/shop")
	fmt.Println(err)
	// Output:
	// map["PORT":"3000"] ["node" "my server.js" "--watch"] <nil>
	// invalid: command "make && ./run": && needs a shell
}
