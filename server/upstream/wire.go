package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// message is one JSON-RPC message as it arrives: a request (Method and ID), a
// notification (Method) or an answer (ID, and Result or Error).
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *RPCError       `json:"error"`
}

// parse reads one line; ok is false for what is no message. Of one that says
// whom it answers, but not what, m holds the ID. Bytes that are not UTF-8 are
// replaced, since results are handed on as they came and what pmcp writes must
// be UTF-8: that makes a message at most twice as long.
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

// number is an id of ours; 0 for any other.
func number(id json.RawMessage) int64 {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// call is a request or, without an ID, a notification.
type call struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      int64          `json:"id,omitempty"`
	Method  string         `json:"method"`
	Params  map[string]any `json:"params,omitempty"`
}

// reply answers a request of the server.
type reply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *RPCError       `json:"error,omitempty"`
}

// encode is v as one line. Text stays as it is: servers under development are
// read by people, and <, > and & would come out as escapes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

const (
	readSize = 64 << 10
	// keepBuffer is how much room a connection keeps between messages.
	keepBuffer = 256 << 10
	// edge is how much is kept of each end of a message that is too large.
	edge = 256
)

// lineReader takes a stream apart at its newlines. A line over max bytes is
// read past, and only its ends are kept.
type lineReader struct {
	r   *bufio.Reader
	max int
	buf []byte
}

// line is one line without its newline, lent until the next.
type line struct {
	text []byte // of a line that is too large: nothing
	size int64
	// head and tail are the ends of a line that is too large.
	head, tail []byte
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, readSize), max: most}
}

// next reads a line. At the end of the stream it gives what is left of an
// unfinished line together with the error.
func (l *lineReader) next() (line, error) {
	if cap(l.buf) > keepBuffer {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	var got line
	for {
		piece, err := l.r.ReadSlice('\n')
		got.size += int64(len(piece))
		switch {
		case got.head != nil:
			got.tail = lastBytes(append(got.tail, piece...))
		case len(l.buf)+len(piece) > l.max+1: // its newline does not count
			all := append(l.buf, piece[:min(len(piece), edge)]...)
			got.head = bytes.Clone(all[:min(len(all), edge)])
			got.tail = lastBytes(bytes.Clone(piece))
			l.buf = nil
		default:
			l.buf = append(l.buf, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		got.text, got.tail = trimLine(l.buf), trimLine(got.tail)
		return got, err
	}
}

func (l line) tooLarge() bool { return l.head != nil }

func lastBytes(b []byte) []byte {
	if len(b) > edge {
		b = append(b[:0], b[len(b)-edge:]...)
	}
	return b
}

func trimLine(b []byte) []byte { return bytes.TrimRight(b, "\r\n") }

// Where the id stands in the text of an answer: first thing, or last. Both are
// at the outermost level: nothing can stand before it, or behind it.
var (
	idAtHead = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*,`)
	idAtTail = regexp.MustCompile(`,\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

// methodAtHead is how a request or a notification begins, as everybody writes it.
var methodAtHead = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*[^,{}\[\]]+,\s*)?"method"\s*:`)

// isCall says that a message whose text is too large answers nothing, as far as its
// beginning tells.
func (l line) isCall() bool { return methodAtHead.Match(l.head) }

// id is that of the answer whose text is too large; 0 if it cannot be told.
func (l line) id() int64 {
	for _, m := range [][][]byte{idAtHead.FindSubmatch(l.head), idAtTail.FindSubmatch(l.tail)} {
		if m != nil {
			return number(m[1])
		}
	}
	return 0
}
