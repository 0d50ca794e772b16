package process_test

import (
	"context"
	"fmt"
	"time"

	"pmcp/process"
)

// printer is a Journal that prints what runs write.
type printer struct{}

func (printer) NewRun(project, name string) (run int64, number int, err error) { return 1, 1, nil }

func (printer) Capture(run int64, stream uint8, at time.Time, p []byte) { fmt.Printf("%s", p) }

func (printer) StopBegan(run int64) {}

func (printer) RunEnded(run int64, exitCode int, signal string) (crashed bool) {
	fmt.Println("ended with exit code", exitCode)
	return false
}

func (printer) EndCapture(run int64) {}

func (printer) Failing(run int64) (failing bool, last int64) { return false, 0 }

// A run counts as ended once the Journal has received all its output.
func Example() {
	ctx := context.Background()
	m := process.NewManager(process.Options{Journal: printer{}})
	defer func() { _ = m.Close(ctx) }()

	spec := process.Spec{Name: "greeting", Command: "sh", Args: []string{"-c", "echo hello; exit 3"}}
	if _, _, err := m.Start(ctx, spec, process.KeepRunning); err != nil {
		fmt.Println(err)
		return
	}
	st, err := m.Await(ctx, "greeting", func(st process.Status) bool { return !st.Alive() })
	fmt.Println(st.State, st.Exit, err)
	// Output:
	// hello
	// ended with exit code 3
	// crashed exit code 3 <nil>
}
