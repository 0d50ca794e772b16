package logstore

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/logstore/line"
	"pmcp/logstore/pack"
)

const (
	// chunkBytes is the size of a chunk's text and metadata, unless the limits make it smaller. A chunk may exceed
	// this size by one line of at most MaxLineBytes.
	chunkBytes = 256 << 10
	metaBytes  = pack.MetaBytes

	metaStream  = 0b11
	metaLevel   = 0b111 << metaLevelAt
	metaLevelAt = 2
	metaCont    = 1 << 5
	metaPartial = 1 << 6
)

// lineFlags packs a line's attributes other than its text and time.
func lineFlags(stream uint8, level line.Level, continuation, partial bool) uint8 {
	f := stream&metaStream | uint8(level)<<metaLevelAt
	if continuation {
		f |= metaCont
	}
	if partial {
		f |= metaPartial
	}
	return f
}

// A block is a sequence of consecutive lines of one run, in memory or read from the file. Its slices are
// never written to.
type block struct {
	first int64  // number of the first line
	base  int64  // time of the first line in Unix nanoseconds
	meta  []byte // metaBytes for each line
	text  []byte // each line's text and a newline
}

func (b *block) lines() int64 { return int64(len(b.meta) / metaBytes) }
func (b *block) last() int64  { return b.first + b.lines() - 1 }

func (b *block) metaAt(i int64) uint64 {
	return binary.LittleEndian.Uint64(b.meta[i*metaBytes:])
}

func (b *block) timeAt(i int64) int64 { return b.base + int64(b.metaAt(i)>>8) }

// line returns the Line at index i, given its text.
func (b *block) line(run, i int64, text []byte) Line {
	m := b.metaAt(i)
	return Line{
		Run:          run,
		Number:       b.first + i,
		At:           time.Unix(0, b.base+int64(m>>8)),
		Stream:       uint8(m & metaStream),
		Level:        line.Level(m & metaLevel >> metaLevelAt),
		Continuation: m&metaCont != 0,
		Partial:      m&metaPartial != 0,
		Text:         string(text),
	}
}

// valid reports whether a block from the file has as many lines of text as of metadata, so that reading it
// cannot go out of range.
func (b *block) valid() bool {
	return len(b.meta)%metaBytes == 0 && int64(bytes.Count(b.text, newline)) == b.lines() &&
		(len(b.text) == 0 || b.text[len(b.text)-1] == '\n')
}

var newline = []byte{'\n'}

// A chunkMeta summarizes a block.
type chunkMeta struct {
	first, lines int64
	bytes        int64 // of text
	minAt, maxAt int64 // Unix nanoseconds
	streams      uint8 // bit set
	byLevel      [line.LevelCount]int64
}

// A chunk is a block that is being filled, or waits to be committed. The run's lock guards the chunk, except
// for the bytes that a snapshot covers: they may be read without the lock.
type chunk struct {
	block
	n int64 // index among the chunks of the run

	tailLines int64                      // how many of its lines are in tail rows in the file
	tailBytes int64                      // size of the text of those lines
	tails     struct{ first, end int64 } // indexes of those tail rows: first <= n < end
	inFlight  bool                       // the flusher is writing it

	// refs counts the references of the owner and of the snapshots. At zero the buffers return to the pool.
	refs atomic.Int32
}

// buffers pools the text and metadata of full-size chunks.
type buffers struct {
	chunk      int64 // size of a chunk that is full; 0 = chunkBytes
	text, meta sync.Pool
}

func newChunk(n, first int64, at int64) *chunk {
	c := &chunk{n: n, block: block{first: first, base: at}}
	c.refs.Store(1)
	return c
}

func (c *chunk) size() int64 { return int64(len(c.text) + len(c.meta)) }

// uncovered returns the size of the lines that neither a chunk row nor tail rows cover.
func (c *chunk) uncovered() int64 { return c.size() - c.tailBytes - c.tailLines*metaBytes }

// uncoveredLines returns the number of those lines, and the size of their text.
func (c *chunk) uncoveredLines() (lines, bytes int64) {
	return c.lines() - c.tailLines, int64(len(c.text)) - c.tailBytes
}

// append adds a line. at must not be before the time of the chunk's last line.
func (c *chunk) append(text []byte, at int64, flags uint8, pool *buffers) {
	c.grow(len(text)+1, pool)
	c.text = append(append(c.text, text...), '\n')
	c.meta = binary.LittleEndian.AppendUint64(c.meta, uint64(at-c.base)<<8|uint64(flags))
}

// snapshot returns a block with the current lines of the chunk. The block stays valid until release is called.
func (c *chunk) snapshot() block {
	c.refs.Add(1)
	return block{first: c.first, base: c.base, meta: c.meta[:len(c.meta):len(c.meta)], text: c.text[:len(c.text):len(c.text)]}
}

func (c *chunk) release(pool *buffers) {
	if c.refs.Add(-1) == 0 {
		pool.put(c)
	}
}

const (
	smallText = 4 << 10
	fullText  = chunkBytes // only the last line of a chunk may not fit
	smallMeta = 64 * metaBytes
	fullMeta  = chunkBytes / 4

	// busyChunk is the time within which a run must fill a chunk for the next one to start at full size.
	busyChunk = time.Second
)

// growFull gives an empty chunk full-size buffers at once.
func (c *chunk) growFull(pool *buffers) {
	c.text, c.meta = getBuffer(fullText, &pool.text), getBuffer(fullMeta, &pool.meta)
}

// grow makes room for n more bytes of text and the metadata of one line. It doubles the buffers, so that a
// quiet run needs little memory, up to a full-size buffer from the pool.
func (c *chunk) grow(n int, pool *buffers) {
	if len(c.text)+n > cap(c.text) {
		c.text = regrow(c.text, max(min(2*cap(c.text), fullText), smallText, len(c.text)+n), fullText, &pool.text)
	}
	if len(c.meta)+metaBytes > cap(c.meta) {
		c.meta = regrow(c.meta, max(2*cap(c.meta), smallMeta), fullMeta, &pool.meta)
	}
}

func regrow(old []byte, want, full int, pool *sync.Pool) []byte {
	if want >= full/2 && want <= full {
		return append(getBuffer(full, pool), old...)
	}
	return append(make([]byte, 0, want), old...)
}

// getBuffer returns an empty buffer of the given size, from the pool if it has one.
func getBuffer(size int, pool *sync.Pool) []byte {
	if p, ok := pool.Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return make([]byte, 0, size)
}

func (b *buffers) put(c *chunk) {
	if cap(c.text) == fullText {
		b.text.Put(&c.text)
	}
	if cap(c.meta) == fullMeta {
		b.meta.Put(&c.meta)
	}
}

// header returns the header of the block, to be stored under the given id.
func (b *block) header(id int64) pack.Header {
	return pack.Header{ID: id, First: b.first, Base: b.base, Lines: b.lines(), Bytes: int64(len(b.text))}
}

// summarize returns the metadata of the block.
func (b *block) summarize() chunkMeta {
	c := chunkMeta{first: b.first, lines: b.lines(), bytes: int64(len(b.text))}
	for i := range c.lines {
		m := b.metaAt(i)
		c.byLevel[m&metaLevel>>metaLevelAt]++
		c.streams |= 1 << (m & metaStream)
	}
	if c.lines > 0 {
		c.minAt, c.maxAt = b.timeAt(0), b.timeAt(c.lines-1)
	}
	return c
}

// lineEnd returns the offset of the newline that ends the line at off.
func (b *block) lineEnd(off int) int {
	return off + bytes.IndexByte(b.text[off:], '\n')
}

// maxLine is greater than any line number.
const maxLine = 1 << 62
