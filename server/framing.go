package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

const (
	readBufferSize = 64 << 10
	oversizeHead   = 4 << 10 // bytes kept from the beginning of a refused line
	oversizeTail   = 2 << 10 // bytes kept from its end
)

// lineReader cuts a stream into lines of at most max bytes. A longer line is
// skipped while it is read, so memory stays bounded, and the stream goes on
// with the line after it.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, readBufferSize), max: max}
}

// oversize is what is known of a line that was skipped.
type oversize struct {
	size       int64 // bytes, without the newline
	head, tail []byte
}

// next returns the next line without its line end, in memory of its own. The
// last line of a stream needs no newline. Of a line over the bound it returns
// an oversize instead. The error is io.EOF at the end, or that of the reader;
// what had been read of an unfinished line before an error other than io.EOF
// is dropped, because it cannot be a whole message.
func (l *lineReader) next() ([]byte, *oversize, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.max+len("\r\n") {
			over, err := l.skip(line, part, err)
			return nil, over, err
		}
		line = append(line, part...)
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0: // EOF comes again on the next call
		default:
			return nil, nil, err
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
		if len(line) > l.max {
			return nil, newOversize(line, nil), nil
		}
		return line, nil, nil
	}
}

// skip reads to the end of a line of which line and then part were read; err
// is what came with part.
func (l *lineReader) skip(line, part []byte, err error) (*oversize, error) {
	over := newOversize(line, part)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = l.r.ReadSlice('\n')
		over.add(part)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return over, nil
}

func newOversize(line, part []byte) *oversize {
	o := &oversize{}
	o.head = append(o.head, line[:min(len(line), oversizeHead)]...)
	o.head = append(o.head, part[:min(len(part), oversizeHead-len(o.head))]...)
	o.add(line)
	o.add(part)
	return o
}

func (o *oversize) add(part []byte) {
	o.size += int64(len(bytes.TrimRight(part, "\r\n")))
	o.tail = append(o.tail, part[max(0, len(part)-oversizeTail):]...)
	if extra := len(o.tail) - oversizeTail; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
}

// id looks for the id of the request that the line was to be, at both ends:
// some clients write it first, others last. It is nil if it is at neither.
func (o *oversize) id() json.RawMessage {
	if id := idInHead(o.head); id != nil {
		return id
	}
	return idInTail(o.tail)
}

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
			return nil // a number may go on behind the cut
		}
		if name == "id" {
			return validID(value)
		}
	}
}

// idInTail recognises `,"id":VALUE}` at the end. In valid JSON the last brace
// closes the outermost object and a scalar before it is that object's last
// member, so no nested id can be taken for it.
func idInTail(tail []byte) json.RawMessage {
	rest, ok := bytes.CutSuffix(bytes.TrimSpace(tail), []byte{'}'})
	if !ok {
		return nil
	}
	rest = bytes.TrimSpace(rest)
	at := lastScalar(rest)
	if at < 0 {
		return nil
	}
	value := rest[at:]
	rest, ok = bytes.CutSuffix(bytes.TrimSpace(rest[:at]), []byte{':'})
	if !ok {
		return nil
	}
	rest, ok = bytes.CutSuffix(bytes.TrimSpace(rest), []byte(`"id"`))
	if !ok {
		return nil
	}
	rest = bytes.TrimSpace(rest)
	if len(rest) == 0 || rest[len(rest)-1] != ',' && rest[len(rest)-1] != '{' {
		return nil
	}
	return validID(bytes.Clone(value))
}

// lastScalar gives the offset of the string or number that b ends with, or -1.
func lastScalar(b []byte) int {
	if len(b) == 0 {
		return -1
	}
	i := len(b) - 1
	if b[i] != '"' {
		for i >= 0 && (b[i] >= '0' && b[i] <= '9' || b[i] == '-') {
			i--
		}
		if i == len(b)-1 {
			return -1
		}
		return i + 1
	}
	for i--; i >= 0; i-- {
		if b[i] == '"' && !escaped(b, i) {
			return i
		}
	}
	return -1
}

// escaped tells whether an odd number of backslashes stands before b[i].
func escaped(b []byte, i int) bool {
	n := 0
	for i--; i >= 0 && b[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// validID returns raw if it can be the id of a request and be echoed, else nil.
func validID(raw json.RawMessage) json.RawMessage {
	if _, ok := idKey(raw); !ok || len(raw) > maxIDSize || !json.Valid(raw) || !utf8.Valid(raw) {
		return nil
	}
	return raw
}
