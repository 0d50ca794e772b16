package health_test

import (
	"context"
	"fmt"
	"time"

	"pmcp/health"
	"pmcp/process"
)

// discard is a process.Journal that stores nothing.
type discard struct{}

func (discard) NewRun(project, name string) (run int64, number int, err error) { return 1, 1, nil }
func (discard) Capture(run int64, stream uint8, at time.Time, p []byte)        {}
func (discard) StopBegan(run int64)                                            {}
func (discard) RunEnded(run int64, exitCode int, signal string) bool           { return false }
func (discard) EndCapture(run int64)                                           {}
func (discard) Failing(run int64) (bool, int64)                                { return false, 0 }

// A Monitor checks a process on a schedule, and at once on request.
func ExampleMonitor_Check() {
	ctx := context.Background()
	processes := process.NewManager(process.Options{Journal: discard{}})
	monitor := health.NewMonitor(health.Options{Processes: processes, Changes: processes.Watch()})
	defer func() {
		monitor.Close()
		_ = processes.Close(ctx)
	}()
	if _, _, err := processes.Start(ctx, process.Spec{Name: "db", Command: "sleep", Args: []string{"1000"}}, process.KeepRunning); err != nil {
		fmt.Println(err)
		return
	}
	if err := monitor.Set("db", &health.Spec{Command: "sh", Args: []string{"-c", "printf accepting"}}); err != nil {
		fmt.Println(err)
		return
	}
	st, err := monitor.Check(ctx, "db")
	fmt.Println(st.State, st.Last().Output, err)
	// Output:
	// healthy accepting <nil>
}
