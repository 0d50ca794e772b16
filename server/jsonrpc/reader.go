package jsonrpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"sync"
	"unicode/utf8"
)

const (
	readBufferBytes = 64 << 10
	keepBytes       = 256 << 10 // buffer kept between lines
	endBytes        = 4 << 10   // kept of each end of a line that is too large
)

// Reader splits a stream into lines. Memory is bounded by the limit given to
// NewReader: a longer line is skipped while it is read, and the stream continues
// with the line after it. It must not be used by several goroutines at once.
type Reader struct {
	in  *bufio.Reader
	max int
	buf []byte
}

// NewReader returns a Reader of in that takes lines of at most max bytes, the line
// end not counted.
func NewReader(in io.Reader, max int) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, readBufferBytes), max: max}
}

// Line is one line of a stream.
type Line struct {
	// Text is the line without its line end, valid until the next call of Next.
	// It is empty if the line is too large.
	Text []byte
	// Size counts the bytes of the line, its line end excluded.
	Size int64
	// Head and Tail are the ends of a line that is too large, at most 4 KiB
	// each; nil for any other.
	Head, Tail []byte
}

// TooLarge reports whether the line was skipped because it is over the limit.
func (l Line) TooLarge() bool { return l.Head != nil }

// Next returns the next line. At the end of the stream it returns what is left of
// an unfinished line together with the error: io.EOF, or that of the reader.
func (r *Reader) Next() (Line, error) {
	if cap(r.buf) > keepBytes {
		r.buf = nil
	}
	r.buf = r.buf[:0]
	var l Line
	for {
		part, err := r.in.ReadSlice('\n')
		l.Size += int64(len(part))
		switch {
		case l.TooLarge():
			l.extend(part)
		case len(r.buf)+len(part) > r.max+len("\r\n"):
			l.extend(r.buf)
			l.extend(part)
			r.buf = nil
		default:
			r.buf = append(r.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !l.TooLarge() && len(trimLineEnd(r.buf)) > r.max {
			l.extend(r.buf)
			r.buf = r.buf[:0]
		}
		if l.TooLarge() {
			l.Tail = l.trim(l.Tail)
		} else {
			l.Text = l.trim(r.buf)
		}
		return l, err
	}
}

// trim returns the last bytes of a line without the line end, and does not count that.
func (l *Line) trim(end []byte) []byte {
	text := trimLineEnd(end)
	l.Size -= int64(len(end) - len(text))
	return text
}

// extend adds the next part of a line that is too large to the ends that are kept.
func (l *Line) extend(part []byte) {
	l.Head = append(l.Head, part[:min(len(part), endBytes-len(l.Head))]...)
	l.Tail = append(l.Tail, part[max(0, len(part)-endBytes):]...)
	if extra := len(l.Tail) - endBytes; extra > 0 {
		l.Tail = append(l.Tail[:0], l.Tail[extra:]...)
	}
}

func trimLineEnd(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte{'\n'}), []byte{'\r'})
}

// ID returns the id of the message that a line which is too large was to be, or
// nil. It searches both ends: some peers write the id first, others last.
func (l Line) ID() json.RawMessage {
	if id := idInHead(l.Head); id != nil {
		return id
	}
	if m := idAtEnd().FindSubmatch(l.Tail); m != nil {
		return validID(m[1])
	}
	return nil
}

// idAtEnd matches a last member "id", or one before a last member "jsonrpc", up to the
// end of a message. In valid JSON the last brace closes the outermost object and a
// scalar before it is that object's last member, so no nested id can match.
var idAtEnd = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[{,]\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
})

// idInHead reads the members of an object that may be cut off anywhere.
func idInHead(head []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(head))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		if d.InputOffset() >= int64(len(head)) {
			return nil // a number may continue after the cut
		}
		if name == "id" {
			return validID(value)
		}
	}
}

// validID returns raw if it can be the id of a request and be echoed, else nil.
func validID(raw json.RawMessage) json.RawMessage {
	if _, ok := IDKey(raw); !ok || !json.Valid(raw) || !utf8.Valid(raw) {
		return nil
	}
	return raw
}
