// Play drives an MCP server by hand, one tool call a command, and counts what the calls cost: how
// many there were, the bytes that the caller wrote, and the bytes that the answers made it read. It
// shows what a task costs an agent, without a script of that task.
//
//	go run ./.ci/play -serve /tmp/p.sock pmcp          # runs the server in this directory until "end"
//	go run ./.ci/play /tmp/p.sock                      # lists the tools
//	go run ./.ci/play /tmp/p.sock start_process        # describes a tool
//	go run ./.ci/play /tmp/p.sock start_process '{"name": "web", "command": "npm run dev"}'
//	go run ./.ci/play /tmp/p.sock end                  # ends the server and prints the count
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

func main() {
	serve := flag.Bool("serve", false, "run the server COMMAND and take calls at SOCKET")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: play -serve SOCKET COMMAND [ARG...]\n       play SOCKET [TOOL [JSON] | end]")
		flag.PrintDefaults()
	}
	flag.Parse()
	var err error
	switch {
	case *serve && flag.NArg() >= 2:
		err = run(flag.Arg(0), flag.Args()[1:])
	case !*serve && flag.NArg() >= 1 && flag.NArg() <= 3:
		err = send(os.Stdout, flag.Arg(0), flag.Args()[1:])
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "play:", err)
		os.Exit(1)
	}
}

// send sends one command to the play that serves at the socket and prints the answer.
func send(w io.Writer, socket string, words []string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := json.NewEncoder(conn).Encode(words); err != nil {
		return err
	}
	_, err = io.Copy(w, conn)
	return err
}

// A player is the connection to the server and what the calls have cost so far.
type player struct {
	server               *client.Client
	calls, read, written int
}

// run starts the server and answers commands, one after the other, until "end".
func run(socket string, command []string) (err error) {
	server, err := client.NewStdioMCPClient(command[0], os.Environ(), command[1:]...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	ctx := context.Background()
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "play", Version: "1"}
	if _, err := server.Initialize(ctx, hello); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	p := &player{server: server}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		if ended := p.handle(ctx, conn); ended {
			return nil
		}
	}
}

// handle reads a command from conn and writes the answer. It reports whether the command was "end".
func (p *player) handle(ctx context.Context, conn net.Conn) (ended bool) {
	w := bufio.NewWriter(conn)
	defer func() { _, _ = w.Flush(), conn.Close() }() // a caller that has gone misses only its own answer
	var words []string
	if err := json.NewDecoder(conn).Decode(&words); err != nil {
		fmt.Fprintln(w, "not a command:", err)
		return false
	}
	var answer string
	var err error
	switch {
	case len(words) == 1 && words[0] == "end":
		fmt.Fprintln(w, p.cost())
		return true
	case len(words) == 0:
		answer, err = p.describe(ctx, "")
	case len(words) == 1:
		answer, err = p.describe(ctx, words[0])
	default:
		answer, err = p.call(ctx, words[0], words[1])
	}
	if err != nil {
		answer = "error: " + err.Error()
	}
	fmt.Fprintln(w, answer)
	fmt.Fprintln(w, "--", p.cost())
	return false
}

func (p *player) cost() string {
	return fmt.Sprintf("%d calls, %d bytes read, %d bytes written", p.calls, p.read, p.written)
}

// describe returns the names and descriptions of the tools, or the definition of one of them.
// Clients give both to their models at the start of a session, so they do not count.
func (p *player) describe(ctx context.Context, name string) (string, error) {
	listed, err := p.server.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return "", err
	}
	var all []string
	for _, tool := range listed.Tools {
		switch name {
		case "":
			all = append(all, tool.Name+": "+tool.Description)
		case tool.Name:
			input, err := json.Marshal(tool.InputSchema)
			return tool.Description + "\n" + string(input), err
		}
	}
	if name != "" {
		return "", fmt.Errorf("no tool %s", name)
	}
	return strings.Join(all, "\n"), nil
}

// call calls a tool with arguments that are a JSON object, counts the cost and returns what a model
// would see of the answer: the text or, for a player of structured content, that of a success.
func (p *player) call(ctx context.Context, tool, arguments string) (string, error) {
	var request mcp.CallToolRequest
	request.Params.Name = tool
	if err := json.Unmarshal([]byte(arguments), &request.Params.Arguments); err != nil {
		return "", fmt.Errorf("the arguments are not a JSON object: %w", err)
	}
	p.calls++
	p.written += len(tool) + len(arguments)
	result, err := p.server.CallTool(ctx, request)
	if err != nil {
		p.read += len(err.Error())
		return "", err
	}
	answer := seen(result)
	p.read += len(answer)
	return answer, nil
}

// seen returns the text of a result.
func seen(result *mcp.CallToolResult) string {
	var texts []string
	for _, content := range result.Content {
		if text, ok := content.(mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "\n")
}
