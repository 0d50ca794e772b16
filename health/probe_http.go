package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"time"

	"pmcp/process"
)

const (
	// maxBody is the number of bytes of a body that Spec.Body is matched
	// against.
	maxBody = 64 << 10
	// maxResponse is the maximum number of bytes read of one response, header
	// included.
	maxResponse = 2 * maxBody
	// errorBodyTimeout bounds the wait for the body of a response that is a
	// failure anyway.
	errorBodyTimeout = 250 * time.Millisecond
)

// probeHTTP makes one HTTP request on its own connection. Without a pattern the
// status decides, and the body of a successful response is not read.
//
// probeHTTP does not use http.Client, which writes what misbehaving servers send to
// the process-wide log, leaves goroutines behind, and costs twice the CPU time for
// requests that share nothing.
func probeHTTP(ctx context.Context, spec Spec, st process.Status) Result {
	target := targetURL(spec, st)
	if target == "" {
		return failed("it listens on no TCP port to request %s on", spec.HTTP)
	}
	request, err := newRequest(ctx, target)
	if err != nil {
		return failed("%s", err)
	}
	conn, err := dialHTTP(ctx, request.URL)
	if err != nil {
		return failed("%s: %s", target, connectError(err, spec.Timeout))
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()

	limited := &io.LimitedReader{R: conn, N: maxResponse}
	response, err := roundTrip(conn, limited, request)
	switch {
	case err != nil && limited.N <= 0:
		return failed("%s: the header of the answer exceeds %d bytes", target, maxResponse)
	case err != nil:
		return failed("%s: %s", target, responseError(err, spec.Timeout))
	}
	return judgeResponse(conn, response, spec, target)
}

// newRequest returns a GET request for target, with the password of the URL.
func newRequest(ctx context.Context, target string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	request.Close = true
	request.Header.Set("User-Agent", "pmcp-health")
	if user := request.URL.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	return request, nil
}

// dialHTTP connects to the server of u, with TLS for https.
func dialHTTP(ctx context.Context, u *url.URL) (net.Conn, error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	conn, err := dial(ctx, net.JoinHostPort(u.Hostname(), port))
	if err != nil || u.Scheme != "https" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{
		ServerName: u.Hostname(),
		// A check tests whether the server answers, not its identity, and
		// development servers use self-signed certificates.
		InsecureSkipVerify: true,
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// roundTrip sends request on conn and reads the header of the response from answer.
// The body of the response must not be closed: that would read the body to its end,
// which may never come.
func roundTrip(conn net.Conn, answer io.Reader, request *http.Request) (*http.Response, error) {
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(answer)
	for {
		response, err := http.ReadResponse(reader, request)
		if err != nil || response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response, err
		}
	}
}

// responseError describes why roundTrip returned err.
func responseError(err error, timeout time.Duration) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before an answer arrived"
	default:
		return connectError(err, timeout)
	}
}

// judgeResponse returns the result of a response. It reads only as much of the
// body as necessary.
func judgeResponse(conn net.Conn, response *http.Response, spec Spec, target string) Result {
	low, high := spec.statusRange()
	switch code := response.StatusCode; {
	case code < low || code > high:
		_ = conn.SetReadDeadline(time.Now().Add(errorBodyTimeout))
		body, _ := readUpTo(response.Body, maxOutput)
		return Result{Message: fmt.Sprintf("%s: status %d, want %s", target, code, rangeText(low, high)), Output: string(body)}
	case spec.Body == "":
		return succeeded("status %d", code)
	default:
		return matchBody(response, spec, target)
	}
}

func rangeText(low, high int) string {
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d-%d", low, high)
}

// matchBody searches for the pattern in the part of the body that arrives
// within the time and size limits of a check.
func matchBody(response *http.Response, spec Spec, target string) Result {
	pattern, err := regexp.Compile(spec.Body)
	if err != nil {
		return failed("%s", err)
	}
	body, ended := readUpTo(response.Body, maxBody)
	if pattern.Match(body) {
		return succeeded("status %d, body matches", response.StatusCode)
	}
	extent := fmt.Sprintf("the first %d bytes of the body", len(body))
	switch {
	case ended:
		extent = fmt.Sprintf("the body of %d bytes", len(body))
	case len(body) < maxBody:
		extent = fmt.Sprintf("the first %d bytes of a body that did not end within %s", len(body), spec.Timeout)
	}
	return Result{
		Message: fmt.Sprintf("%s: status %d, but no match for %q in %s", target, response.StatusCode, spec.Body, extent),
		Output:  string(body[:min(len(body), maxOutput)]),
	}
}

// readUpTo reads r until its end, an error or limit bytes. ended reports whether
// readUpTo reached the end.
func readUpTo(r io.Reader, limit int64) (body []byte, ended bool) {
	body, err := io.ReadAll(io.LimitReader(r, limit))
	return body, err == nil && int64(len(body)) < limit
}

// targetURL returns the URL of an HTTP check. A path is requested on the port of the
// readiness rule, else on the lowest that the tree listens on; without such a port
// targetURL returns "".
func targetURL(spec Spec, st process.Status) string {
	if spec.HTTP[0] != '/' {
		return spec.HTTP
	}
	port := 0
	if r := st.Spec.Ready; r != nil && r.Port != nil {
		port = *r.Port
	}
	if port == 0 && len(st.Ports) > 0 {
		port = st.Ports[0]
	}
	if port == 0 {
		return ""
	}
	return "http://localhost:" + strconv.Itoa(port) + spec.HTTP
}
