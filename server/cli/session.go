package cli

import (
	"bufio"
	"bytes"
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

	"pmcp/logstore/line"
)

// A session is a pmcp server that answers the calls of the page, as it would those of an
// agent. It starts nothing itself.
type session struct {
	client *client.Client
	stderr sync.WaitGroup
}

// startSession starts this program as a server in the current directory, for a client of that
// name, with more variables in its environment. The warnings of the server go to stderr.
func startSession(ctx context.Context, name string, stderr io.Writer, env ...string) (*session, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stdio := transport.NewStdio(exe, append(os.Environ(), env...)) // as it is: what is kept gets it
	s := &session{client: client.NewClient(stdio)}
	if err := s.client.Start(context.WithoutCancel(ctx)); err != nil { // Close ends it
		return nil, fmt.Errorf("cannot start a server: %w", err)
	}
	s.stderr.Go(func() { copyWarnings(stderr, stdio.Stderr()) })
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: name, Version: "1"}
	if _, err := s.client.Initialize(ctx, hello); err != nil {
		return nil, errors.Join(fmt.Errorf("the server does not answer: %w", err), s.Close())
	}
	return s, nil
}

// copyWarnings copies the messages of a server, without those that only inform.
func copyWarnings(to io.Writer, from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(" level=INFO ")) && !bytes.Contains(lines.Bytes(), []byte(" level=DEBUG ")) {
			_, _ = fmt.Fprintln(to, line.Visible(lines.Text()))
		}
	}
	_, _ = io.Copy(io.Discard, from) // after a line that is too long
}

// call calls a tool and returns its structured result. It is a page.Call.
func (s *session) call(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	result, _, err := s.ask(ctx, tool, arguments)
	if err != nil {
		return nil, err
	}
	return result.RawStructuredContent, nil
}

// ask calls a tool and returns its answer and the text of that. An answer that is an error becomes err.
func (s *session) ask(ctx context.Context, tool string, arguments json.RawMessage) (result *mcp.CallToolResult, text string, err error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = tool, arguments
	request.Params.Meta = mcp.NewMetaFromMap(map[string]any{"pmcp/structured": true})
	if result, err = s.client.CallTool(ctx, request); err != nil {
		return nil, "", err
	}
	for _, c := range result.Content {
		if t, ok := c.(mcp.TextContent); ok {
			text += t.Text
		}
	}
	if result.IsError {
		return nil, "", errors.New(text)
	}
	return result, text, nil
}

// Close ends the server.
func (s *session) Close() error {
	err := s.client.Close()
	s.stderr.Wait()
	return err
}
