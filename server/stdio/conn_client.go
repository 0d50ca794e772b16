package stdio

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// This file holds the messages that the server sends without a request from the
// client.

// Ping sends a ping and returns nil when the client responds, even with an
// error. It returns ErrPingImpossible if no request may be sent to the client,
// the cause of ctx if ctx ends first, and errOutboxClosed if the connection
// ends.
func (c *Conn) Ping(ctx context.Context) error {
	if c.session.currentEra() != eraLegacy {
		return ErrPingImpossible
	}
	id := fmt.Appendf(nil, `"pmcp-%d"`, c.lastPing.Add(1))
	key, _ := jsonrpc.IDKey(id)
	answered := make(chan struct{})
	c.pings.Store(key, answered)
	defer c.pings.Delete(key)
	line, _ := jsonrpc.EncodeCall(id, string(mcp.MethodPing), nil) // without params it always encodes
	if err := c.out.put(outgoing{line: line}, 0, ctx.Done()); err != nil {
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

// resolvePing ends the Ping that m answers. It ignores a response that came too late.
func (c *Conn) resolvePing(m jsonrpc.Message) {
	if answered, found := c.pings.LoadAndDelete(m.Key); found {
		close(answered.(chan struct{}))
	}
}

// Modern reports whether the client has sent a request of 2026-07-28.
func (c *Conn) Modern() bool { return c.session.currentEra() == eraModern }

// SubscribedResources returns the URIs of the resources whose updates the client
// wants, sorted.
func (c *Conn) SubscribedResources() []string { return c.session.SubscribedResources() }

// WaitingCalls returns how many requests that may wait long are being handled.
func (c *Conn) WaitingCalls() int {
	c.requests.mu.Lock()
	defer c.requests.mu.Unlock()
	return c.requests.waiting
}

// Notify sends a notification that belongs to no request, such as
// notifications/resources/updated with the param "uri". The notification reaches
// the client only if the client's era and subscriptions allow it;
// SubscribedResources lists the resources whose updates would reach it. While
// the client does not read, Notify blocks until ctx ends.
func (c *Conn) Notify(ctx context.Context, method string, params map[string]any) error {
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method = method
	n.Params.AdditionalFields = params
	return c.route(n, ctx.Done())
}

// broadcast sends a notification that mcp-go itself has made.
func (c *Conn) broadcast(n mcp.JSONRPCNotification) {
	if err := c.route(n, c.out.killed); err != nil {
		c.Log.Debug("a notification was not sent", "method", n.Method, "error", err)
	}
}

// route sends n to a legacy client as it is. To a 2026-07-28 client it sends n
// on each stream that asked for such notifications.
func (c *Conn) route(n mcp.JSONRPCNotification, quit <-chan struct{}) error {
	switch c.session.currentEra() {
	case eraLegacy:
		if !c.session.Initialized() || !c.session.wantsLegacy(n) {
			return nil
		}
		return c.sendNotification(n.Method, n.Params, nil, quit)
	case eraModern:
		for _, l := range c.session.streamsWanting(n) {
			if err := c.sendNotification(n.Method, withSubscriptionID(n.Params, l.req.ID), l.req.wanted, quit); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendNotification queues a notification; see outgoing and outbox.put.
func (c *Conn) sendNotification(method string, params any, beforeWrite func() bool, quit <-chan struct{}) error {
	line, err := jsonrpc.EncodeCall(nil, method, params)
	if err != nil {
		c.Log.Error("cannot encode a notification", "method", method, "error", err)
		return err
	}
	return c.out.put(outgoing{line: line, beforeWrite: beforeWrite}, 0, quit)
}
