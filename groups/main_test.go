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

// TestMain runs the test binary as one of the programs of the stack, or the
// tests.
func TestMain(m *testing.M) {
	program := map[string]func() error{"db": runDB, "migrate": runMigrate, "api": runAPI, "web": runWeb}[os.Getenv("GROUPS_TEST_PROGRAM")]
	if program == nil {
		goleak.VerifyTestMain(m)
		return
	}
	note("begins")
	if err := program(); err != nil {
		note("fails: " + err.Error())
		os.Exit(3)
	}
	note("ends")
}

// note prints a line that the test reads: when, and what.
func note(text string) { fmt.Println(time.Now().UnixMicro(), text) }

// serves says so. It comes before a program takes connections: who sees that it
// does may be ahead of it.
func serves() (stop <-chan os.Signal) {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	note("serves")
	return stopped
}

// untilStopped waits for SIGTERM, and some more, as a server that drains does.
func untilStopped(stop <-chan os.Signal) {
	<-stop
	note("drains")
	<-time.After(200 * time.Millisecond)
}

// runDB takes a second to take connections.
func runDB() error {
	<-time.After(time.Second)
	stop := serves()
	listener, err := net.Listen("tcp", os.Getenv("DB"))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	untilStopped(stop)
	return nil
}

// runMigrate needs the database and leaves a file.
func runMigrate() error {
	if err := needDB(); err != nil {
		return err
	}
	<-time.After(300 * time.Millisecond)
	return os.WriteFile("migrated", nil, 0o600)
}

func needDB() error {
	conn, err := net.Dial("tcp", os.Getenv("DB"))
	if err != nil {
		return err
	}
	return conn.Close()
}

// runAPI needs the database; it is ready 200 ms after it listens.
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
	stop := serves()
	go func() { _ = server.ListenAndServe() }()
	untilStopped(stop)
	return nil
}

// runWeb needs the API and the migration, and both until its end.
func runWeb() error {
	if _, err := os.Stat("migrated"); err != nil {
		return err
	}
	if err := needAPI(); err != nil {
		return err
	}
	untilStopped(serves())
	return needAPI()
}

func needAPI() error {
	response, err := http.Get("http://" + os.Getenv("API") + "/health")
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API answers %s", response.Status)
	}
	return nil
}
