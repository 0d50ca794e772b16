package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"pmcp/process/prose"
	"pmcp/process/sockets"
)

const (
	// httpTimeout bounds one request of a readiness check, bodyTimeout the wait for
	// its body, and maxReadyBody how much of that is read, in bytes.
	httpTimeout  = 2 * time.Second
	bodyTimeout  = 250 * time.Millisecond
	maxReadyBody = 64 << 10
	// keptBody is how many bytes of a body HTTPAnswer keeps.
	keptBody = 1 << 10
)

// An HTTPAnswer is the answer to one request of Ready.HTTP.
type HTTPAnswer struct {
	Request string // "GET http://127.0.0.1:3000/health"
	Status  int    // 0: it was not answered
	// By is the process that listens there, in words, if it is not of the run's tree; ""
	// if it is, or is not known.
	By   string
	Type string // the media type, at most 60 bytes; "" if there is none
	// Bytes is the size of the body. More reports that the body has more, because
	// it is longer than 64 KiB or did not end soon.
	Bytes int64
	More  bool
	Took  time.Duration // until the header was received
	Body  string        // at most the first KiB of a body that is text, as UTF-8
}

// OK reports whether the status is 200 to 399.
func (a *HTTPAnswer) OK() bool { return a.Status >= 200 && a.Status <= 399 }

// checkHTTP returns "" if each URL and path has answered with success, else the
// reasons why the rule does not hold. It does not repeat a request that succeeded.
func (r *readiness) checkHTTP(ctx context.Context, listeners, own []sockets.Socket) string {
	var missing []string
	for i, target := range r.rules.targets() {
		answer := &r.answers[i]
		if answer.OK() {
			continue
		}
		var why string
		if strings.HasPrefix(target, "/") {
			why = r.checkPath(ctx, target, listeners, own, answer)
		} else {
			why = r.checkURL(ctx, target, listeners, own, answer)
		}
		if why != "" && !slices.Contains(missing, why) {
			missing = append(missing, why)
		}
	}
	return strings.Join(missing, "; ")
}

// checkPath checks a path on the ports of the run. An answer that the run passed on from another
// tree does not count.
func (r *readiness) checkPath(ctx context.Context, path string, listeners, own []sockets.Socket, answer *HTTPAnswer) string {
	why := "it does not listen on any TCP port yet"
	for _, s := range own {
		if r.rules.Port != nil && *r.rules.Port != 0 && s.Port() != *r.rules.Port {
			continue
		}
		url := "http://" + s.Dial() + path
		if why = r.request(ctx, url, answer); why != "" {
			continue
		}
		if held := r.relay(ctx, url, listeners); held != "" {
			*answer, r.blocks = HTTPAnswer{}, true
			return url + " is answered by another server: " + held
		}
		return ""
	}
	return why
}

// relay returns which process of another tree answers at url, through a proxy of the run, or "": one
// that holds a port on which the run could not listen, and to which it connects when url is
// requested. A connection to any other port proves nothing, because it may be that of a database.
func (r *readiness) relay(ctx context.Context, url string, listeners []sockets.Socket) string {
	for _, port := range r.m.takenPorts(ctx, r.run, r.spec) {
		held := r.holder(port, listeners)
		if held.text == "" || held.entry == r.spec.Name {
			continue
		}
		before, err := sockets.Clients(port)
		if err != nil {
			return ""
		}
		sockets.AddHolders(before, r.m.deps.tree.scanSince(time.Now()).members[r.run])
		isOwn := func(s sockets.Socket) bool { return len(s.Holders) > 0 }
		r.request(ctx, url, new(HTTPAnswer))
		after, _ := sockets.Clients(port)
		isNew := func(s sockets.Socket) bool {
			return !slices.ContainsFunc(before, func(b sockets.Socket) bool { return b.Addr == s.Addr })
		}
		if slices.ContainsFunc(before, isOwn) || slices.ContainsFunc(after, isNew) {
			return heldSentence(port, held.text)
		}
	}
	return ""
}

// SetTakenPorts sets a function that returns the ports on which a run could not listen, by its
// output. Without it, any answer to a path counts.
func (m *Manager) SetTakenPorts(taken func(ctx context.Context, run int64, spec Spec) []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = taken
}

// takenPorts returns the ports on which run could not listen.
func (m *Manager) takenPorts(ctx context.Context, run int64, spec Spec) []int {
	m.mu.Lock()
	taken := m.taken
	m.mu.Unlock()
	if taken == nil {
		return nil
	}
	return taken(ctx, run, spec)
}

// checkURL checks an absolute URL. If the URL is of this machine, a server that
// listened before the run began does not count, because the answer would not be
// the run's. A server that began to listen later may be outside the run's tree,
// as containers are.
func (r *readiness) checkURL(ctx context.Context, target string, listeners, own []sockets.Socket, answer *HTTPAnswer) string {
	u, err := url.Parse(target)
	if err != nil { // Ready.check has parsed this URL without an error
		return err.Error()
	}
	port := urlPort(u)
	foreign := isLocal(u.Hostname()) && !slices.Contains(sockets.Ports(own), port)
	if foreign && !r.openedSinceStart(port, listeners) {
		why := heldSentence(port, r.holder(port, listeners).text)
		if len(own) > 0 {
			r.blocks = true
			why += fmt.Sprintf("; it listens on %s", prose.Ints(sockets.Ports(own)))
		}
		return why
	}
	why := r.request(ctx, target, answer)
	if foreign && answer.Status != 0 {
		if now, err := sockets.Listening(); err == nil { // the port may have opened since listeners was read
			listeners = now
		}
		if held := r.holder(port, listeners); held.entry != r.spec.Name {
			answer.By = held.text
		}
	}
	return why
}

// request returns "" if GET url answers 200 to 399, else the reason why not. It
// stores an answer in answer.
func (r *readiness) request(ctx context.Context, url string, answer *HTTPAnswer) string {
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	began := time.Now()
	got, err := r.client.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s did not answer within %s", url, httpTimeout)
	case err != nil:
		return fmt.Sprintf("%s does not answer yet", url)
	}
	defer func() { _ = got.Body.Close() }()
	*answer = HTTPAnswer{Request: req.Method + " " + url, Status: got.StatusCode, Type: mediaType(got.Header.Get("Content-Type")), Took: time.Since(began)}
	defer time.AfterFunc(bodyTimeout, cancel).Stop()
	answer.read(got)
	if !answer.OK() {
		// Do not use got.Status: the server chose its text, of any length.
		return strings.TrimSpace(fmt.Sprintf("%s answers %d %s", url, got.StatusCode, http.StatusText(got.StatusCode)))
	}
	return ""
}

// read reads the beginning of the body of an answer.
func (a *HTTPAnswer) read(got *http.Response) {
	body, err := io.ReadAll(io.LimitReader(got.Body, maxReadyBody))
	if a.Bytes = int64(len(body)); got.ContentLength > a.Bytes {
		a.Bytes = got.ContentLength
	} else {
		a.More = err != nil || a.Bytes == maxReadyBody
	}
	if textType().MatchString(a.Type) && utf8.Valid(body[:max(0, len(body)-utf8.UTFMax)]) && !bytes.Contains(body, []byte{0}) {
		a.Body = prose.Head(string(body), keptBody)
	}
}

var (
	// plainType is a media type without parameters.
	plainType = lazily(`^[\w.+-]{1,30}/[\w.+-]{1,29}$`)
	// textType matches the media types of text, and no type.
	textType = lazily(`^$|^text/|json|xml|javascript`)
)

func mediaType(header string) string {
	name, _, _ := strings.Cut(header, ";")
	if name = strings.ToLower(strings.TrimSpace(name)); plainType().MatchString(name) {
		return name
	}
	return ""
}

// newReadyClient returns a client for exactly one response: no proxy, no
// redirect, no kept connection, any certificate (those of developers are
// self-signed).
func newReadyClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:  true,
			DisableCompression: true,                                  // for the size of the body
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, // the check trusts nothing in the response
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func urlPort(u *url.URL) int {
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// isLocal reports whether host names this machine in its own programs.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
