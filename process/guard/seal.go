package guard

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstLeaked is the first descriptor that a well-behaved parent would not have
// passed on.
const firstLeaked = 3

// sealEach marks the open descriptors from firstLeaked up close-on-exec, one by
// one. /dev/fd exists on both platforms.
func sealEach() error {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return fmt.Errorf("cannot seal inherited descriptors: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("cannot seal inherited descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd >= firstLeaked {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
