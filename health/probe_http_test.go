package health

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pmcp/process"
)

// rawServer answers each connection by serve and closes it then; what hangs is
// cut at the end of the test.
func rawServer(t *testing.T, serve func(conn net.Conn)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	return "http://" + listener.Addr().String() + "/"
}

func TestHTTPThatNeverAnswers(t *testing.T) {
	url := rawServer(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	r := probeOnce(t, Spec{HTTP: url, Timeout: 300 * time.Millisecond}, &realProcesses{})
	want(t, r, false, `no answer within 300ms$`, `^$`)
	if r.Took > 20*time.Second {
		t.Errorf("took %s", r.Took)
	}
}

func TestHTTPHeaderWithoutEnd(t *testing.T) {
	url := rawServer(t, func(conn net.Conn) {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for err == nil {
			_, err = io.WriteString(conn, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n")
		}
	})
	r := probeOnce(t, Spec{HTTP: url, Timeout: 20 * time.Second}, &realProcesses{})
	want(t, r, false, `header`, `^$`)
	if r.Took > 10*time.Second {
		t.Errorf("took %s", r.Took)
	}
}

func TestHTTPThatIsNoHTTP(t *testing.T) {
	url := rawServer(t, func(conn net.Conn) { // says its name before it is asked
		_, _ = io.WriteString(conn, "\x1b[31mSSH-2.0-x\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	r := probeOnce(t, Spec{HTTP: url, Timeout: time.Minute}, &realProcesses{})
	want(t, r, false, `malformed HTTP`, `^$`)
	if strings.Contains(r.Message, "\x1b") {
		t.Errorf("message %q", r.Message)
	}
}

// hostile is a server with a page for each of the ways to answer.
func hostile(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"ok"}`) })
	mux.HandleFunc("/500", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "the database \x1b[31mis gone")
	})
	mux.HandleFunc("/500-forever", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "some words")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/404", http.NotFound)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/500", http.StatusFound) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		chunk := []byte(strings.Repeat("x", 32<<10))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "ok")
	})
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/auth", func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "p" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux.HandleFunc("/drip", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "status: ok\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestHTTPCheck(t *testing.T) {
	server := hostile(t)
	for _, test := range []struct {
		spec            Spec
		ok              bool
		message, output string
	}{
		{Spec{HTTP: "/ok"}, true, `^status 200$`, `^$`},
		{Spec{HTTP: "/ok", Body: `"status":\s*"ok"`}, true, `body matches`, `^$`},
		{Spec{HTTP: "/ok", Body: `degraded`}, false, `no match for "degraded" in the body of 15 bytes`, `^{"status":"ok"}$`},
		{Spec{HTTP: "/500"}, false, `status 500, want 200-399`, `^the database is gone$`},
		{Spec{HTTP: "/500-forever"}, false, `status 500`, `^some words$`},
		{Spec{HTTP: "/404"}, false, `status 404`, `not found`},
		{Spec{HTTP: "/404", StatusMin: 404}, true, `status 404`, ``},
		{Spec{HTTP: "/ok", StatusMin: 204}, false, `status 200, want 204-399`, ``},
		{Spec{HTTP: "/redirect"}, true, `status 302`, ``},
		{Spec{HTTP: "/redirect", StatusMax: 299}, false, `status 302, want 200-299`, ``},
		{Spec{HTTP: "/stream"}, true, `status 200`, `^$`},
		{Spec{HTTP: "/stream", Body: "y"}, false, `in the first 65536 bytes of the body`, `^x+$`},
		{Spec{HTTP: "/hints"}, true, `status 200`, `^$`},
		{Spec{HTTP: "/cut"}, false, `closed before there was an answer|reset`, `^$`},
		{Spec{HTTP: "/drip"}, true, `status 200`, `^$`},
		{Spec{HTTP: "/drip", Body: "ok$", Timeout: 5 * time.Second}, false, `did not end within 5s`, `status: ok`},
		{Spec{HTTP: "/drip", Body: "ok", Timeout: 5 * time.Second}, true, `body matches`, ``},
	} {
		t.Run(test.spec.HTTP, func(t *testing.T) {
			test.spec.HTTP = server.URL + test.spec.HTTP
			test.spec.Timeout = cmp.Or(test.spec.Timeout, time.Minute)
			r := probeOnce(t, test.spec, &realProcesses{})
			want(t, r, test.ok, test.message, test.output)
			if r.Took > 20*time.Second {
				t.Errorf("took %s", r.Took)
			}
		})
	}
}

func TestHTTPWithPassword(t *testing.T) {
	url := strings.Replace(hostile(t).URL, "http://", "http://u:p@", 1)
	want(t, probeOnce(t, Spec{HTTP: url + "/auth"}, &realProcesses{}), true, `status 200`, ``)
}

func TestHTTPWithOwnCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	want(t, probeOnce(t, Spec{HTTP: server.URL, StatusMin: 404}, &realProcesses{}), true, `status 404`, ``)
}

// A path is asked for on the port of the readiness rule, else on the lowest
// that the tree listens on.
func TestHTTPPathOnTheProcessesPort(t *testing.T) {
	server := hostile(t)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	p := &realProcesses{}
	want(t, probeOnce(t, Spec{HTTP: "/ok"}, p), false, `listens on no TCP port`, ``)
	p.status.Ports = []int{port, 65535}
	want(t, probeOnce(t, Spec{HTTP: "/ok"}, p), true, `status 200`, ``)
	p.status.Ports = []int{1}
	p.status.Spec.Ready = &process.Ready{Port: &port}
	want(t, probeOnce(t, Spec{HTTP: "/ok"}, p), true, `status 200`, ``)
	anyPort := 0
	p.status.Spec.Ready.Port = &anyPort
	want(t, probeOnce(t, Spec{HTTP: "/ok"}, p), false, `connection refused`, ``)
}
