package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrDisconnected is wrapped when there is no connection or it has ended.
	ErrDisconnected = errors.New("not connected")
	// ErrNotSent is wrapped, beside ErrDisconnected, when not one byte of the
	// request was written: the caller may repeat it on another connection.
	ErrNotSent = errors.New("the request was not sent")
	// ErrStarting is wrapped when a server has not answered initialize in time.
	ErrStarting = errors.New("the server has not come up")
	// ErrTooLarge is wrapped when a response exceeds the limit for a message.
	ErrTooLarge = errors.New("the answer is too large")
	// ErrBusy is wrapped when too many calls are in flight, or when every server
	// that was started on demand is in use.
	ErrBusy = errors.New("too much at once")
	// ErrNoRoom is wrapped by Processes.Start when the limit of running processes
	// is reached: one has to stop first.
	ErrNoRoom = errors.New("no room for another process")
	// ErrClosed is wrapped after Hub.Close was called.
	ErrClosed = errors.New("pmcp is shutting down")
)

// An RPCError is a JSON-RPC error from a server.
type RPCError struct {
	// Code is the JSON-RPC code. Message is the server's text: one line of at most
	// about 2000 bytes, with a mark where it was cut.
	Code    int64  `json:"code"`
	Message string `json:"message"`
	// Data is the error's data; nil for none.
	Data json.RawMessage `json:"data,omitempty"`
}

// Error returns the message, quoted because it is the server's, and the code, and
// the data if they are short.
func (e *RPCError) Error() string {
	const most = 1000
	text := fmt.Sprintf("%q (code %d)", e.Message, e.Code)
	if len(e.Data) > 0 && len(e.Data) <= most && string(e.Data) != "null" {
		text += " " + OneLine(string(e.Data))
	}
	return text
}

// UnmarshalJSON accepts any JSON value and never fails: even a malformed error
// answers the call. A code that is not a number becomes 0. A value that is not an
// object with a code or a message becomes the message.
func (e *RPCError) UnmarshalJSON(raw []byte) error {
	var got struct{ Code, Message, Data json.RawMessage }
	if json.Unmarshal(raw, &got) != nil || got.Code == nil && got.Message == nil {
		*e = RPCError{Message: stringOrJSON(raw)}
		return nil
	}
	*e = RPCError{Message: stringOrJSON(got.Message), Data: got.Data}
	var code float64
	switch {
	case json.Unmarshal(got.Code, &e.Code) == nil:
	case json.Unmarshal(got.Code, &code) == nil:
		if math.Abs(code) < 1<<53 { // larger floats are not exact integers
			e.Code = int64(code)
		}
	case got.Code != nil: // such as "ENOENT"
		e.Message = stringOrJSON(got.Code) + ": " + e.Message
	}
	return nil
}

func stringOrJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
