package guardian

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// startPercent is how much garbage there may be during the start of the server, in percent of the
// memory in use (see GOGC): a start leaves nothing to collect that is worth the time. Packages that
// are initialised after this one leave half of it.
const startPercent = 400

// startSpan is how long a start may leave garbage. Then what it has left is returned to the system.
const startSpan = time.Second

// gcPercent is how much garbage there may be after the start. Most of the memory in use is text that
// waits to be stored, which the collector need not scan: fifty floods took 100 MB instead of 150, and
// no more processor time. In a session of a few megabytes that would be a collection for every ten
// calls, which take a quarter longer then. So there is ballast, memory that counts as in use and is
// never touched, and therefore takes none: it allows for 5 MB of garbage. The server returns that to
// the system when the calls rest.
const (
	gcPercent = 30
	ballast   = 16 << 20
)

// leaveGarbage gives the start its grace for garbage.
func leaveGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(startPercent)
	}
}

// LimitGarbage ends the grace that a start has for garbage, and holds the ballast until ctx ends.
// With GOGC set, it only returns the start's garbage to the system.
func LimitGarbage(ctx context.Context) {
	select {
	case <-time.After(startSpan):
	case <-ctx.Done():
		return
	}
	var held []byte
	if os.Getenv("GOGC") == "" {
		held = make([]byte, ballast)
		debug.SetGCPercent(gcPercent)
	}
	debug.FreeOSMemory()
	<-ctx.Done()
	runtime.KeepAlive(held)
}
