package groups

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain runs the test binary as one of the programs of the stack, or runs
// the tests.
func TestMain(m *testing.M) {
	program := map[string]func() error{"db": runDB, "migrate": runMigrate, "api": runAPI, "web": runWeb}[os.Getenv("GROUPS_TEST_PROGRAM")]
	if program == nil {
		goleak.VerifyTestMain(m)
		return
	}
	printEvent("begins")
	if err := program(); err != nil {
		printEvent("fails: " + err.Error())
		os.Exit(3)
	}
	printEvent("ends")
}

// printEvent prints a line for the test to read: the time and the event.
func printEvent(text string) { fmt.Println(time.Now().UnixMicro(), text) }

// reportServing prints the event "serves" and returns a channel that receives
// SIGTERM. A program calls reportServing before it accepts connections, so that no
// client connects before the event.
func reportServing() (stop <-chan os.Signal) {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	printEvent("serves")
	return stopped
}

// untilStopped waits for SIGTERM, prints the event "drains" and waits 200 ms more,
// like a server that completes its requests.
func untilStopped(stop <-chan os.Signal) {
	<-stop
	printEvent("drains")
	<-time.After(200 * time.Millisecond)
}

// runDB accepts connections after a second.
func runDB() error {
	<-time.After(time.Second)
	stop := reportServing()
	listener, err := net.Listen("tcp", os.Getenv("DB"))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	untilStopped(stop)
	return nil
}

// runMigrate fails unless the database accepts connections. It then creates the file
// "migrated".
func runMigrate() error {
	if err := needDB(); err != nil {
		return err
	}
	<-time.After(300 * time.Millisecond)
	return os.WriteFile("migrated", nil, 0o600)
}

// needDB returns an error unless the database accepts connections.
func needDB() error {
	conn, err := net.Dial("tcp", os.Getenv("DB"))
	if err != nil {
		return err
	}
	return conn.Close()
}

// runAPI fails unless the database accepts connections. It then serves HTTP, for the
// first 200 ms with errors only.
func runAPI() error {
	if err := needDB(); err != nil {
		return err
	}
	if os.Getenv("FAIL") != "" {
		return errors.New("bad configuration")
	}
	ready := time.Now().Add(200 * time.Millisecond)
	server := &http.Server{Addr: os.Getenv("API"), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().Before(ready) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	stop := reportServing()
	go func() { _ = server.ListenAndServe() }()
	untilStopped(stop)
	return nil
}

// runWeb fails unless the migration has run and the API serves, at the start of
// runWeb and at its end.
func runWeb() error {
	if _, err := os.Stat("migrated"); err != nil {
		return err
	}
	if err := needAPI(); err != nil {
		return err
	}
	untilStopped(reportServing())
	return needAPI()
}

// needAPI returns an error unless the API serves without errors.
func needAPI() error {
	response, err := http.Get("http://" + os.Getenv("API") + "/health")
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API returned %s", response.Status)
	}
	return nil
}
