package server

import (
	"context"

	"pmcp/server/stdio"
)

// The channel of Claude Code (a research preview): a server that declares the capability sends notifications whose
// content wakes the model.
const (
	channelCapability = "claude/channel"
	channelMethod     = "notifications/claude/channel"
)

// runChannel sends each line that wakes the model to the client, until ctx ends.
func (s *Server) runChannel(ctx context.Context, client *stdio.Conn) {
	for next := 0; ; {
		a, err := s.events.wake.follow(ctx, next)
		if err != nil {
			return
		}
		for _, line := range a.Lines {
			if client.Push(ctx, channelMethod, map[string]any{"content": line, "meta": map[string]string{}}) != nil {
				return // ctx has ended, or the client is gone
			}
		}
		next = a.Next
	}
}
