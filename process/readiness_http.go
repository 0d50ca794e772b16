package process

import (
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
)

// httpPatience bounds one request of a readiness check.
const httpPatience = 2 * time.Second

// checkHTTP answers "" if the URL answers as it should, else why not.
func (r *readiness) checkHTTP(ctx context.Context, sockets, own []socket) string {
	if !strings.HasPrefix(r.rules.HTTP, "/") {
		return r.checkURL(ctx, sockets, own)
	}
	why := "it does not listen on any TCP port yet"
	for _, s := range own {
		if r.rules.Port != nil && *r.rules.Port != 0 && s.port() != *r.rules.Port {
			continue
		}
		if why = r.request(ctx, "http://"+s.dial()+r.rules.HTTP); why == "" {
			return ""
		}
	}
	return why
}

// checkURL asks a whole URL. If it is on this machine, a server that was there
// before the run does not count: the answer would not be the run's. One that
// came since may be outside the tree: containers are.
func (r *readiness) checkURL(ctx context.Context, sockets, own []socket) string {
	u, err := url.Parse(r.rules.HTTP)
	if err != nil { // Ready.check has parsed it
		return err.Error()
	}
	port := urlPort(u)
	ours := slices.Contains(portsOf(own), port)
	if isLocal(u.Hostname()) && !ours {
		old := slices.ContainsFunc(sockets, func(s socket) bool { return s.port() == port && r.before.keys[s.key] })
		if old {
			return heldSentence(port, r.holder(port, sockets))
		}
	}
	return r.request(ctx, r.rules.HTTP)
}

// request answers "" if GET url answers 200 to 399, else why not.
func (r *readiness) request(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, httpPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	answer, err := r.client.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s did not answer within %s", url, httpPatience)
	case err != nil:
		return fmt.Sprintf("%s does not answer yet", url)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	_ = answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		// Not answer.Status: its words are the server's, of any length.
		return strings.TrimSpace(fmt.Sprintf("%s answers %d %s", url, answer.StatusCode, http.StatusText(answer.StatusCode)))
	}
	return ""
}

// newReadyClient is a client that looks at exactly one answer: no proxy, no
// redirect, no connection kept, any certificate (a developer's is self-made).
func newReadyClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // it asks whether the server is up, and trusts nothing it says
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

// isLocal says whether host is this machine as its own programs name it.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
