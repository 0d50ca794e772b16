package feed_test

import (
	"context"
	"fmt"

	"pmcp/process/feed"
)

// A reader that falls behind learns how many values it has missed. Publish never waits for a
// reader.
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
