package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// spareDescriptors of those that the server may have are kept from the streams
// of processes: reading the log, checks and the record go on when no further
// process can be started. Four readers of the log take 8, a check for a moment 8.
// It is half of the limit if that is less.
const spareDescriptors = 32

// leaveSpare is an error that wraps EMFILE if the files that a process is to
// get are among the spare ones. The kernel always gives the lowest number that
// is free, so a high one means that those below are taken.
func leaveSpare(files []*os.File) error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return nil
	}
	spare := min(spareDescriptors, limit.Cur/2)
	for _, f := range files {
		if uint64(f.Fd())+spare >= limit.Cur {
			return fmt.Errorf("%w: %d are in use, and the last %d of %d are kept for the log and the checks", unix.EMFILE, f.Fd(), spare, limit.Cur)
		}
	}
	return nil
}
