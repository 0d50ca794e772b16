package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
)

// This file holds what the server sends of its own accord.

// ping asks the client for a sign of life and returns nil when one came, even
// an error response. It returns errPingImpossible where no request may be
// written, the cause of ctx if that ends first, and errOutboxClosed when the
// connection ends.
func (c *conn) ping(ctx context.Context) error {
	if c.session.currentEra() != eraLegacy {
		return errPingImpossible
	}
	key, raw, answered := c.newPing()
	defer c.dropPing(key)
	line, err := encodeCall(raw, string(mcp.MethodPing), nil)
	if err != nil {
		return fmt.Errorf("cannot encode a ping: %w", err)
	}
	if err := c.out.put(outgoing{line: line}, ctx.Done()); err != nil {
		return fmt.Errorf("cannot send a ping: %w", err)
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no answer to a ping: %w", context.Cause(ctx))
	case <-c.stopping:
		return errOutboxClosed
	}
}

func (c *conn) newPing() (key string, raw json.RawMessage, answered chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	raw = fmt.Appendf(nil, `"pmcp-%d"`, c.lastID)
	key, _ = idKey(raw)
	answered = make(chan struct{})
	c.pings[key] = answered
	return key, raw, answered
}

func (c *conn) dropPing(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pings, key)
}

// takeResponse routes an answer to a request of ours. One that nobody waits for
// came late and is ignored.
func (c *conn) takeResponse(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answered := c.pings[m.key]; answered != nil {
		close(answered)
		delete(c.pings, m.key)
	}
}

// notify sends a notification that belongs to no request, such as
// notifications/resources/updated with the param "uri". It reaches the client
// only if its era and its subscriptions want it; to learn whether an update of
// a resource would, ask c.session.IsSubscribedToResource. While the client does
// not read, it waits, until ctx ends.
func (c *conn) notify(ctx context.Context, method string, params map[string]any) error {
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method = method
	n.Params.AdditionalFields = params
	return c.route(n, ctx.Done())
}

// broadcast is where the notifications that mcp-go sends by itself come out.
func (c *conn) broadcast(n mcp.JSONRPCNotification) {
	if err := c.route(n, c.out.killed); err != nil {
		c.log.Debug("a notification was not sent", "method", n.Method, "error", err)
	}
}

// route sends n to a legacy client as it is, and to a 2026-07-28 client on each
// stream that asked for it.
func (c *conn) route(n mcp.JSONRPCNotification, quit <-chan struct{}) error {
	switch c.session.currentEra() {
	case eraLegacy:
		if !c.session.Initialized() || !c.session.wantsLegacy(n) {
			return nil
		}
		return c.sendNotification(n.Method, n.Params, nil, quit)
	case eraModern:
		for _, l := range c.session.listensFor(n) {
			if err := c.sendNotification(n.Method, withSubscriptionID(n.Params, l.req.id), l.req.wanted, quit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *conn) sendNotification(method string, params mcp.NotificationParams, admit func() bool, quit <-chan struct{}) error {
	line, err := encodeCall(nil, method, params)
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", method, err)
	}
	return c.out.put(outgoing{line: line, admit: admit}, quit)
}
