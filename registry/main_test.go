package registry

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"pmcp/process/proctab"
	"pmcp/registry/registrytest"
)

// TestMain runs the tests or, in a child of a test, the server or process that the test asks for.
func TestMain(m *testing.M) {
	if code, ran := registrytest.Main(serve); ran {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// serve registers a server without a guardian.
func serve(dir, id string) (*os.File, registrytest.Registration, error) {
	lock, err := create(dir, id)
	if err != nil {
		return nil, nil, err
	}
	record := Describe(0)
	record.Version, record.ClientName = "0.1", "a test"
	reg, err := Register(dir, id, record)
	return lock, reg, err
}

// create prepares and publishes a lock, as a server without a guardian does.
func create(dir, id string) (*os.File, error) {
	lock, err := Prepare(dir, id)
	if err != nil {
		return nil, err
	}
	if err := Publish(lock, dir, id); err != nil {
		return nil, errors.Join(err, lock.Close(), removeFile(unfinished(dir, id, lockSuffix)))
	}
	return lock, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// self returns the identity of this process.
func self(t *testing.T) proctab.ID {
	t.Helper()
	row, err := proctab.Read(os.Getpid())
	must(t, err)
	return row.ID
}

// startHeir starts a process that inherits the lock and does nothing with it.
func startHeir(t *testing.T, lock *os.File) *exec.Cmd {
	t.Helper()
	heir := exec.Command("cat")
	heir.ExtraFiles = []*os.File{lock}
	stdin, err := heir.StdinPipe()
	must(t, err)
	must(t, heir.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = heir.Process.Kill(); _ = heir.Wait() })
	return heir
}
