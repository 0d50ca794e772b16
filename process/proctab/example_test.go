package proctab_test

import (
	"fmt"
	"os"
	"syscall"

	"pmcp/process/proctab"
)

// Signal signals the process that the ID names or none: the same pid with another
// start time is another process.
func ExampleSignal() {
	self, err := proctab.Read(os.Getpid())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("this process:", self.PPID == os.Getppid(), proctab.Signal(self.ID, syscall.SIGCONT))

	earlier := self.ID
	earlier.Start--
	fmt.Println("an earlier process with this pid:", proctab.Signal(earlier, syscall.SIGKILL))
	// Output:
	// this process: true <nil>
	// an earlier process with this pid: process is gone
}
