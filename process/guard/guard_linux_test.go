package guard

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// programPages returns how much of the mappings of the test's program is in memory, in KiB.
func programPages(t *testing.T) (resident int) {
	t.Helper()
	program, err := os.Readlink("/proc/self/exe")
	must(t, err)
	smaps, err := os.ReadFile("/proc/self/smaps")
	must(t, err)
	ours := false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		if strings.Contains(fields[0], "-") {
			ours = strings.HasSuffix(strings.TrimSpace(line), " "+program)
		} else if n, err := strconv.Atoi(fields[1]); err == nil && ours && fields[0] == "Rss:" {
			resident += n
		}
	}
	return resident
}

func TestReleaseProgramUnmapsWhatIsNotUsed(t *testing.T) {
	if !isOnLocalDisk("/proc/self/exe") {
		t.Skip("the program is on no local disk")
	}
	content, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	before := programPages(t)
	releaseProgram()
	if after := programPages(t); before == 0 || after >= before {
		t.Errorf("got %d KiB in memory after %d KiB, want less; mappings:\n%s", after, before, content)
	}
}
