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

// rawServer starts a server that calls serve for each connection, one after the other,
// and then closes the connection. It returns the URL of the server, which is closed when
// the test ends.
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

// TestHTTPWithoutResponseTimesOut checks a server that accepts a request and sends
// nothing.
func TestHTTPWithoutResponseTimesOut(t *testing.T) {
	url := rawServer(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	r := probeOnce(t, Spec{HTTP: url, Timeout: 300 * time.Millisecond}, &realProcesses{})
	checkResult(t, r, false, `no answer within 300ms$`, `^$`)
}

// TestHTTPHeaderWithoutEndFails checks that a check stops reading a header that never
// ends, long before its timeout.
func TestHTTPHeaderWithoutEndFails(t *testing.T) {
	url := rawServer(t, func(conn net.Conn) {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for err == nil {
			_, err = io.WriteString(conn, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n")
		}
	})
	r := probeOnce(t, Spec{HTTP: url, Timeout: time.Minute}, &realProcesses{})
	checkResult(t, r, false, `header`, `^$`)
}

// TestResponseThatIsNotHTTPFails checks a server that speaks another protocol. Its bytes
// must not reach the message unsanitized.
func TestResponseThatIsNotHTTPFails(t *testing.T) {
	url := rawServer(t, func(conn net.Conn) { // like a server of SSH, sends its name before any request
		_, _ = io.WriteString(conn, "\x1b[31mSSH-2.0-x\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	r := probeOnce(t, Spec{HTTP: url, Timeout: time.Minute}, &realProcesses{})
	checkResult(t, r, false, `malformed HTTP`, `^$`)
	if strings.Contains(r.Message, "\x1b") {
		t.Errorf("got message %q, want no escape sequence", r.Message)
	}
}

// newHostileServer returns a server with a path for each kind of response, harmless or
// hostile to clients.
func newHostileServer(t *testing.T) *httptest.Server {
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

// TestStatusAndBodyDecideHTTPCheck checks the verdict, the message and the output for
// each path of newHostileServer.
func TestStatusAndBodyDecideHTTPCheck(t *testing.T) {
	server := newHostileServer(t)
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
		{Spec{HTTP: "/cut"}, false, `closed before an answer arrived|reset`, `^$`},
		{Spec{HTTP: "/drip"}, true, `status 200`, `^$`},
	} {
		t.Run(test.spec.HTTP, func(t *testing.T) {
			test.spec.HTTP = server.URL + test.spec.HTTP
			test.spec.Timeout = cmp.Or(test.spec.Timeout, time.Minute)
			r := probeOnce(t, test.spec, &realProcesses{})
			checkResult(t, r, test.ok, test.message, test.output)
		})
	}
	var matched Result
	for _, timeout := range growingTimeouts { // on a busy machine the body may come late
		if matched = probeOnce(t, Spec{HTTP: server.URL + "/drip", Body: "ok", Timeout: timeout}, &realProcesses{}); matched.OK {
			break
		}
	}
	checkResult(t, matched, true, `body matches`, ``)
	r := probeInTime(t, Spec{HTTP: server.URL + "/drip", Body: "ok$"}, &realProcesses{}, "ok")
	checkResult(t, r, false, `did not end within \d`, `status: ok`)
}

// TestHTTPSendsPassword checks that a check sends the user and password of its URL.
func TestHTTPSendsPassword(t *testing.T) {
	url := strings.Replace(newHostileServer(t).URL, "http://", "http://u:p@", 1)
	checkResult(t, probeOnce(t, Spec{HTTP: url + "/auth"}, &realProcesses{}), true, `status 200`, ``)
}

func TestHTTPAcceptsSelfSignedCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	checkResult(t, probeOnce(t, Spec{HTTP: server.URL, StatusMin: 404}, &realProcesses{}), true, `status 404`, ``)
}

// TestHTTPPathUsesPortOfProcess checks that a path is requested on the port of the
// readiness rule or, without such a port, on the lowest port that the tree listens on.
func TestHTTPPathUsesPortOfProcess(t *testing.T) {
	server := newHostileServer(t)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	p := &realProcesses{}
	checkResult(t, probeOnce(t, Spec{HTTP: "/ok"}, p), false, `listens on no TCP port`, ``)
	p.status.Ports = []int{port, 65535}
	checkResult(t, probeOnce(t, Spec{HTTP: "/ok"}, p), true, `status 200`, ``)
	p.status.Ports = []int{1}
	p.status.Spec.Ready = &process.Ready{Port: &port}
	checkResult(t, probeOnce(t, Spec{HTTP: "/ok"}, p), true, `status 200`, ``)
	anyPort := 0
	p.status.Spec.Ready.Port = &anyPort
	checkResult(t, probeOnce(t, Spec{HTTP: "/ok"}, p), false, `connection refused`, ``)
}
