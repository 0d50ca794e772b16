package stdio

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// This file holds the messages that the server sends without a request from the
// client.

// Ping sends a ping and returns nil when the client responds, even with an
// error. It returns ErrPingImpossible if no request may be sent to the client,
// the cause of ctx if ctx ends first, and errClosed if the connection
// ends.
func (c *Conn) Ping(ctx context.Context) error {
	_, _, err := c.ask(ctx, string(mcp.MethodPing), nil)
	return err
}

// Request sends a request and returns the client's response: its result, or the error as the
// client sent it. When ctx ends, Request sends the client a cancellation. It returns an error as
// Ping does.
func (c *Conn) Request(ctx context.Context, method string, params json.RawMessage) (result, refusal json.RawMessage, err error) {
	response, id, err := c.ask(ctx, method, params)
	if err != nil && id != nil && ctx.Err() != nil {
		line, _ := jsonrpc.EncodeCall(nil, "notifications/cancelled", map[string]any{"requestId": id}) // always encodes
		_ = c.send(outgoing{line: line}, ctx.Done())                                                   // a client that does not read learns nothing
	}
	return response.Result, response.Error, err
}

// ask sends a request and waits for the response. id is nil if nothing was sent.
func (c *Conn) ask(ctx context.Context, method string, params json.RawMessage) (response jsonrpc.Message, id json.RawMessage, err error) {
	if c.session.currentEra() != eraLegacy {
		return response, nil, ErrPingImpossible
	}
	id = fmt.Appendf(nil, `"pmcp-%d"`, c.lastID.Add(1))
	key, _ := jsonrpc.IDKey(id)
	answered := make(chan jsonrpc.Message, 1)
	c.asked.Store(key, answered)
	defer c.asked.Delete(key)
	var members any
	if params != nil {
		members = params
	}
	line, err := jsonrpc.EncodeCall(id, method, members)
	if err != nil {
		return response, nil, err
	}
	if err := c.send(outgoing{line: line}, ctx.Done()); err != nil {
		return response, nil, fmt.Errorf("cannot send a %s: %w", method, err)
	}
	select {
	case response = <-answered:
		return response, id, nil
	case <-ctx.Done():
		return response, id, fmt.Errorf("no answer to a %s: %w", method, context.Cause(ctx))
	case <-c.stopping.Done():
		return response, id, errClosed
	}
}

// resolve ends the request to the client that m answers. It ignores a response that came too late.
func (c *Conn) resolve(m jsonrpc.Message) {
	if answered, found := c.asked.LoadAndDelete(m.Key); found {
		answered.(chan jsonrpc.Message) <- m // has room: each response is taken from the map once
	}
}

// ClientCapabilities returns what the client declared, and whether it takes requests: one that
// speaks 2026-07-28 or has not initialized does not.
func (c *Conn) ClientCapabilities() (caps mcp.ClientCapabilities, requests bool) {
	return c.session.GetClientCapabilities(), c.session.currentEra() == eraLegacy
}

// Modern reports whether the client has sent a request of 2026-07-28.
func (c *Conn) Modern() bool { return c.session.currentEra() == eraModern }

// SubscribedResources returns the URIs of the resources whose updates the client
// wants, sorted.
func (c *Conn) SubscribedResources() []string { return c.session.SubscribedResources() }

// Notify sends a notification that belongs to no request, such as
// notifications/resources/updated with the param "uri". The notification reaches
// the client only if the client's era and subscriptions allow it;
// SubscribedResources lists the resources whose updates would reach it. While
// the client does not read, Notify blocks until ctx ends.
func (c *Conn) Notify(ctx context.Context, method string, params map[string]any) error {
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method = method
	n.Params.AdditionalFields = params
	switch c.session.currentEra() {
	case eraLegacy:
		if !c.session.wantsLegacy(n) {
			return nil
		}
		return c.sendNotification(n.Method, n.Params, nil, ctx.Done())
	case eraModern:
		for _, l := range c.session.streamsWanting(n) {
			wanted := func() bool { return c.unanswered(l.req) }
			if err := c.sendNotification(n.Method, withSubscriptionID(n.Params, l.req.ID), wanted, ctx.Done()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Push sends a notification that the client has asked for by other means than the protocol: whatever its era and
// subscriptions are. Before the client's first request that tells its era, it does nothing. It blocks as Notify does.
func (c *Conn) Push(ctx context.Context, method string, params map[string]any) error {
	if !c.session.Initialized() {
		return nil
	}
	return c.sendNotification(method, params, nil, ctx.Done())
}

// sendNotification queues a notification; see outgoing and send.
func (c *Conn) sendNotification(method string, params any, beforeWrite func() bool, quit <-chan struct{}) error {
	line, err := jsonrpc.EncodeCall(nil, method, params)
	if err != nil {
		c.Log.Error("cannot encode a notification", "method", method, "error", err)
		return err
	}
	return c.send(outgoing{line: line, beforeWrite: beforeWrite}, quit)
}
