package server

import (
	"strings"
	"testing"

	"pmcp/health"
)

// TestHealthOutputIsBounded: of ten checks that printed as much as is kept the
// latest are shown, and of the others how much is left out.
func TestHealthOutputIsBounded(t *testing.T) {
	st := health.Status{Name: "web"}
	for range 10 {
		st.Results = append(st.Results, health.Result{Message: "exit code 1", Output: strings.Repeat("x", 4<<10)})
	}
	r := ofHealth(&st)
	if n := len(r.Results); n != 10 || r.Results[9].Output != st.Results[9].Output || r.Results[0].Output != "… [+4096 bytes]" {
		t.Errorf("%d results, the first with %q", n, r.Results[0].Output)
	}
	if n := len(r.text()); n > defaultMaxBytes {
		t.Errorf("%d bytes", n)
	}
}
