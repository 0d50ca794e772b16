package feed_test

import (
	"context"
	"fmt"

	"pmcp/process/feed"
)

// A reader that falls behind is told how much it has missed; nobody waits for it.
func Example() {
	f := feed.New[string](2)
	r := f.Reader()
	for _, state := range []string{"starting", "running", "exited"} {
		f.Publish(state)
	}
	f.Close()
	for {
		state, missed, err := r.Next(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(state, "missed:", missed)
	}
	// Output:
	// running missed: 1
	// exited missed: 0
	// EOF
}
