package upstream

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"unicode/utf8"

	"pmcp/server/jsonrpc"
)

// A message is one received JSON-RPC message: a request (Method and ID), a
// notification (Method) or a response (ID, and Result or Error).
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *RPCError       `json:"error"`
}

// parse returns the message in one line. ok reports whether it is a message. For a
// response with neither result nor error, ok is false and m holds the ID. parse
// replaces invalid UTF-8, because results are passed on unchanged and pmcp must
// write UTF-8; that makes a message at most twice as long.
func parse(line []byte) (m message, ok bool) {
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte(string(utf8.RuneError)))
	}
	if json.Unmarshal(line, &m) != nil {
		return message{}, false
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	return m, m.Method != "" || m.ID != nil && (m.Result != nil || m.Error != nil)
}

// number returns id as a number, or 0 if it is not one and so not an id of ours.
func number(id json.RawMessage) int64 {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// methodAtHead matches the start of a request or a notification as servers
// usually write it.
var methodAtHead = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*[^,{}\[\]]+,\s*)?"method"\s*:`)

// isCall reports whether a message that is too large is a request or a
// notification, judging by its start.
func isCall(l jsonrpc.Line) bool { return methodAtHead.Match(l.Head) }
