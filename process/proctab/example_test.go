package proctab_test

import (
	"fmt"
	"os"
	"syscall"

	"pmcp/process/proctab"
)

// A signal goes to the process that was meant or to none: the same pid with
// another start time is another process.
func ExampleSignal() {
	self, err := proctab.Read(os.Getpid())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("it is us:", self.PPID == os.Getppid(), proctab.Signal(self.ID, syscall.SIGCONT))

	earlier := self.ID
	earlier.Start--
	fmt.Println("who had the pid before:", proctab.Signal(earlier, syscall.SIGKILL))
	// Output:
	// it is us: true <nil>
	// who had the pid before: process is gone
}
