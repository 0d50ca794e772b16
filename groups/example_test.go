package groups_test

import (
	"fmt"

	"pmcp/groups"
)

// Members start after their dependencies, otherwise as listed.
func ExampleGroup_Order() {
	stack := groups.Group{Name: "stack", Members: []groups.Member{
		{Process: "web", DependsOn: []groups.Dependency{{Process: "api"}}},
		{Process: "api", DependsOn: []groups.Dependency{{Process: "db", Condition: groups.Healthy}, {Process: "migrate", Condition: groups.ExitedOK}}},
		{Process: "db"},
		{Process: "migrate", DependsOn: []groups.Dependency{{Process: "db"}}},
	}}
	fmt.Println(stack.Order())

	stack.Members[2].DependsOn = []groups.Dependency{{Process: "web"}}
	fmt.Println(stack.Validate())
	// Output:
	// [db migrate api web] <nil>
	// invalid: group stack: the dependencies form a cycle: web → api → db → web
}
