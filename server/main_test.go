package server

import (
	"testing"

	"go.uber.org/goleak"

	"pmcp/process/proctest"
)

func TestMain(m *testing.M) {
	proctest.Interruptible()
	proctest.Overlap()
	goleak.VerifyTestMain(m)
}
