package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrDisconnected is wrapped when there is no connection, or no longer.
	ErrDisconnected = errors.New("not connected")
	// ErrNotSent is wrapped, beside ErrDisconnected, when not one byte of the
	// request was written: it can be made again on another connection.
	ErrNotSent = errors.New("the request was not sent")
	// ErrStarting is wrapped when a server has not answered initialize in time.
	ErrStarting = errors.New("the server has not come up")
	// ErrTooLarge is wrapped when the answer was over the bound of a message.
	ErrTooLarge = errors.New("the answer is too large")
	// ErrBusy is wrapped when too many calls are in flight, or all servers that
	// were started on demand are at work.
	ErrBusy = errors.New("too much at once")
	// ErrNoRoom is what Processes.Start wraps when so many processes run that
	// one of them has to go first.
	ErrNoRoom = errors.New("no room for another process")
	// ErrClosed is wrapped once the Hub is closing.
	ErrClosed = errors.New("pmcp is shutting down")
)

// RPCError is an error that a server has answered.
type RPCError struct {
	// Code is the JSON-RPC code, Message the server's text: one line of about
	// 2000 bytes at most, a cut being marked.
	Code    int64  `json:"code"`
	Message string `json:"message"`
	// Data is what else it said; nil for nothing.
	Data json.RawMessage `json:"data,omitempty"`
}

// Error gives message and code, and the data if that is short.
func (e *RPCError) Error() string {
	const most = 1000
	text := fmt.Sprintf("%s (code %d)", e.Message, e.Code)
	if len(e.Data) > 0 && len(e.Data) <= most && string(e.Data) != "null" {
		text += " " + OneLine(string(e.Data))
	}
	return text
}

// UnmarshalJSON takes whatever a server gives for an error, and never fails: the
// call has been answered, if not as it should. A code that is no number is 0,
// and what is no object with a message is the message itself.
func (e *RPCError) UnmarshalJSON(raw []byte) error {
	var came struct{ Code, Message, Data json.RawMessage }
	if json.Unmarshal(raw, &came) != nil || came.Code == nil && came.Message == nil {
		*e = RPCError{Message: wordOf(raw)}
		return nil
	}
	*e = RPCError{Message: wordOf(came.Message), Data: came.Data}
	var code float64
	switch {
	case json.Unmarshal(came.Code, &e.Code) == nil:
	case json.Unmarshal(came.Code, &code) == nil:
		if math.Abs(code) < 1<<53 { // beyond it is no integer that could be meant
			e.Code = int64(code)
		}
	case came.Code != nil: // such as "ENOENT"
		e.Message = wordOf(came.Code) + ": " + e.Message
	}
	return nil
}

// wordOf is the string that raw is, or else the JSON.
func wordOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// codeMethodNotFound is JSON-RPC's.
const codeMethodNotFound = -32601
