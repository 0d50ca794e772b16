package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"testing"

	mcpserver "github.com/mark3labs/mcp-go/server"
)

// BenchmarkConn measures one request and its answer over io.Pipe. In the same
// run it measures mcp-go's own stdio server for comparison.
func BenchmarkConn(b *testing.B) {
	messages := map[string]string{
		"ping":       `{"jsonrpc":"2.0","id":%d,"method":"ping"}` + "\n",
		"tools_call": `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}` + "\n",
		"tools_list": `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}` + "\n",
	}
	servers := map[string]func(s *mcpserver.MCPServer, ctx context.Context, in io.Reader, out io.Writer) error{
		"pmcp": func(s *mcpserver.MCPServer, ctx context.Context, in io.Reader, out io.Writer) error {
			return NewConn(s, Options{In: in, Out: out}).Serve(ctx)
		},
		"mcpgo": func(s *mcpserver.MCPServer, ctx context.Context, in io.Reader, out io.Writer) error {
			st := mcpserver.NewStdioServer(s)
			st.SetErrorLogger(log.New(io.Discard, "", 0))
			return st.Listen(ctx, in, out)
		},
	}
	for _, message := range []string{"ping", "tools_call", "tools_list"} {
		for _, server := range []string{"mcpgo", "pmcp"} {
			b.Run(message+"/"+server, func(b *testing.B) {
				inR, inW := io.Pipe()
				outR, outW := io.Pipe()
				served := make(chan error, 1)
				go func() { served <- servers[server](newToolbox().mcp, context.Background(), inR, outW) }()
				out := bufio.NewReader(outR)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := fmt.Fprintf(inW, messages[message], i); err != nil {
						b.Fatal(err)
					}
					if err := skipLine(out); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				inW.Close()
				if err := <-served; err != nil {
					b.Error(err)
				}
			})
		}
	}
}

func skipLine(r *bufio.Reader) error {
	for {
		if _, err := r.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
