package command_test

import (
	"fmt"

	"pmcp/process/command"
)

// Split splits a command line as a shell would, and refuses one that needs a shell.
func ExampleSource_Split() {
	env, argv, err := command.Read(`PORT=3000 node "my server.js" --watch`, "/srv/shop").Split()
	fmt.Printf("%q %q %v\n", env, argv, err)
	_, _, err = command.Read("make && ./run", "/srv/shop").Split()
	fmt.Println(err)
	// Output:
	// map["PORT":"3000"] ["node" "my server.js" "--watch"] <nil>
	// invalid: command "make && ./run": && needs a shell
}
