package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// A session is a pmcp server that answers the calls of the page, as it would those of an
// agent. It starts nothing itself.
type session struct {
	client *client.Client
	stderr sync.WaitGroup
}

// startSession starts this program as a server in the current directory. The messages of the
// server go to stderr.
func startSession(ctx context.Context, stderr io.Writer) (*session, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stdio := transport.NewStdio(exe, append(os.Environ(), "PM_LOG_LEVEL=warn"))
	s := &session{client: client.NewClient(stdio)}
	if err := s.client.Start(context.WithoutCancel(ctx)); err != nil { // Close ends it
		return nil, fmt.Errorf("cannot start a server: %w", err)
	}
	s.stderr.Go(func() { _, _ = io.Copy(stderr, stdio.Stderr()) })
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "pmcp open", Version: "1"}
	if _, err := s.client.Initialize(ctx, hello); err != nil {
		return nil, errors.Join(fmt.Errorf("the server does not answer: %w", err), s.Close())
	}
	return s, nil
}

// call calls a tool. It is a page.Call.
func (s *session) call(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = tool, arguments
	result, err := s.client.CallTool(ctx, request)
	if err != nil {
		return nil, err
	}
	if result.IsError {
		var text string
		for _, c := range result.Content {
			if t, ok := c.(mcp.TextContent); ok {
				text += t.Text
			}
		}
		return nil, errors.New(text)
	}
	return json.Marshal(result.StructuredContent)
}

// Close ends the server.
func (s *session) Close() error {
	err := s.client.Close()
	s.stderr.Wait()
	return err
}
