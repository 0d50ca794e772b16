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
	// maxBody is how much of an answer Spec.Body is looked for in, in bytes.
	maxBody = 64 << 10
	// maxAnswer bounds what is read of one answer, header included, in bytes.
	maxAnswer = 2 * maxBody
	// errorBodyPatience is how long the text of an answer that is a failure
	// anyway is waited for.
	errorBodyPatience = 250 * time.Millisecond
)

// get makes one HTTP request on a connection of its own. Without a pattern the
// status decides, and the body of a good answer is not read.
//
// It does without http.Client: that writes what strange servers send to the
// process-wide log, leaves goroutines behind, and costs twice the CPU time for
// requests that share nothing.
func (p prober) get(ctx context.Context, spec Spec, st process.Status) outcome {
	target := target(spec, st)
	if target == "" {
		return failed("it listens on no TCP port that %s could be asked for on", spec.HTTP)
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

	answer := &io.LimitedReader{R: conn, N: maxAnswer}
	response, err := roundTrip(conn, answer, request)
	switch {
	case err != nil && answer.N <= 0:
		return failed("%s: the header of the answer takes over %d bytes", target, maxAnswer)
	case err != nil:
		return failed("%s: %s", target, answerError(err, spec.Timeout))
	}
	return judge(conn, response, spec, target)
}

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

// dialHTTP connects to the server of u, by TLS if it says https.
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
		// A check asks whether the server answers, not who it is; development
		// servers sign their certificates themselves.
		InsecureSkipVerify: true,
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// roundTrip sends request on conn and reads the header of the answer. The body
// needs no closing: that would read it to its end, which may not come.
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

// answerError says why there was no answer on a connection.
func answerError(err error, timeout time.Duration) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before there was an answer"
	default:
		return connectError(err, timeout)
	}
}

// judge says what an answer means. Only as much of the body is read as that
// needs.
func judge(conn net.Conn, response *http.Response, spec Spec, target string) outcome {
	low, high := spec.statuses()
	switch code := response.StatusCode; {
	case code < low || code > high:
		_ = conn.SetReadDeadline(time.Now().Add(errorBodyPatience))
		body, _ := readSome(response.Body, maxOutput)
		return outcome{message: fmt.Sprintf("%s: status %d, want %s", target, code, rangeText(low, high)), output: string(body)}
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

// matchBody looks for the pattern in what arrives of the body within the time
// and the bound of a check.
func matchBody(response *http.Response, spec Spec, target string) outcome {
	pattern, err := regexp.Compile(spec.Body)
	if err != nil {
		return failed("%s", err)
	}
	body, ended := readSome(response.Body, maxBody)
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
	return outcome{
		message: fmt.Sprintf("%s: status %d, but no match for %q in %s", target, response.StatusCode, spec.Body, extent),
		output:  string(body[:min(len(body), maxOutput)]),
	}
}

// readSome reads until the end, an error or limit bytes; ended says that it was
// the end.
func readSome(r io.Reader, limit int64) (body []byte, ended bool) {
	body, err := io.ReadAll(io.LimitReader(r, limit))
	return body, err == nil && int64(len(body)) < limit
}

// target is the URL of an HTTP check; "" if the process has no port yet.
func target(spec Spec, st process.Status) string {
	if spec.HTTP[0] != '/' {
		return spec.HTTP
	}
	port := portOf(st)
	if port == 0 {
		return ""
	}
	return "http://localhost:" + strconv.Itoa(port) + spec.HTTP
}

// portOf is the port that a path is asked for on: that of the readiness rule,
// else the lowest that the tree listens on; 0 if there is none.
func portOf(st process.Status) int {
	if r := st.Spec.Ready; r != nil && r.Port != nil && *r.Port > 0 {
		return *r.Port
	}
	if len(st.Ports) > 0 {
		return st.Ports[0]
	}
	return 0
}
