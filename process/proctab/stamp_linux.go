package proctab

import (
	"bytes"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// stamping is held while this process has the limits of a child that is being started,
// because all threads of a process share its limits.
var stamping sync.Mutex

// Stamped calls start, which starts a child, and returns the error of start. The child
// carries s. Where that is not permitted, as below a hard limit, the child carries no stamp.
func Stamped(s Stamp, start func() error) error {
	stamping.Lock()
	defer stamping.Unlock()
	var before unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &before) == nil {
		stamped := unix.Rlimit{Cur: uint64(s), Max: before.Max}
		if unix.Prlimit(0, unix.RLIMIT_LOCKS, &stamped, nil) == nil {
			defer func() { _ = unix.Prlimit(0, unix.RLIMIT_LOCKS, &before, nil) }()
		}
	}
	return start()
}

// StampOf returns the stamp of a process, 0 if it has none or has ended.
func StampOf(pid int) Stamp {
	limits, err := File(pid, "limits")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(limits, []byte("\nMax file locks"))
	soft, _, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	s, err := strconv.ParseUint(string(soft), 10, 63) // soft may also be "unlimited"
	if err != nil {
		return 0
	}
	return Stamp(s)
}
