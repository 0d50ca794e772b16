package guard

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAwaitSaysWhatHasNotArrived checks what the forked process learns: the end of the guardian is no
// error, and a session without all its descriptors is one.
func TestAwaitSaysWhatHasNotArrived(t *testing.T) {
	before := inherited
	t.Cleanup(func() { inherited = before })
	for _, c := range []struct {
		name string
		give func(channel int) error
		want string // of the error; "" for none
	}{
		{"the guardian has ended", unix.Close, ""},
		{"two descriptors", func(channel int) error { return Fork{Channel: channel}.begin("id", 0, 1) }, "got 2 of 3 descriptors"},
		{"no descriptors", func(channel int) error { return Fork{Channel: channel}.begin("id") }, "got 0 of 3 descriptors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			must(t, c.give(ends[0]))
			id, err := Await(1, ends[1])
			if id != "" || (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q and %v, want %q", id, err, c.want)
			}
		})
	}
}
