package logstore

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// chunkBytes is the text and metadata of a chunk; one more line of at most maxLineBytes may overshoot it.
	chunkBytes = 256 << 10
	// metaBytes is the size of a line's metadata: time since the chunk's first line in ns << 8, and flags.
	metaBytes = 8

	metaStream  = 0b11
	metaLevel   = 0b111 << metaLevelAt
	metaLevelAt = 2
	metaCont    = 1 << 5
	metaPartial = 1 << 6
)

// lineFlags packs what is known of a line besides its text and time.
func lineFlags(stream uint8, level Level, continuation, partial bool) uint8 {
	f := stream&metaStream | uint8(level)<<metaLevelAt
	if continuation {
		f |= metaCont
	}
	if partial {
		f |= metaPartial
	}
	return f
}

// block is a stretch of consecutive lines of one run, in memory or read from the file. Its slices are never written to.
type block struct {
	first int64  // number of the first line
	base  int64  // time of the first line in Unix nanoseconds
	meta  []byte // metaBytes a line
	text  []byte // each line's text and a newline
}

func (b *block) lines() int64 { return int64(len(b.meta) / metaBytes) }
func (b *block) last() int64  { return b.first + b.lines() - 1 }

func (b *block) metaAt(i int64) uint64 {
	return binary.LittleEndian.Uint64(b.meta[i*metaBytes:])
}

func (b *block) timeAt(i int64) int64 { return b.base + int64(b.metaAt(i)>>8) }

// line makes the Line at index i from its text.
func (b *block) line(run, i int64, text []byte) Line {
	m := b.metaAt(i)
	return Line{
		Run:          run,
		Number:       b.first + i,
		At:           time.Unix(0, b.base+int64(m>>8)),
		Stream:       uint8(m & metaStream),
		Level:        Level(m & metaLevel >> metaLevelAt),
		Continuation: m&metaCont != 0,
		Partial:      m&metaPartial != 0,
		Text:         string(text),
	}
}

// sound tells whether a block from the file has as many lines of text as of metadata, so that
// nothing read from it can go out of range.
func (b *block) sound() bool {
	return len(b.meta)%metaBytes == 0 && int64(bytes.Count(b.text, newline)) == b.lines() &&
		(len(b.text) == 0 || b.text[len(b.text)-1] == '\n')
}

var newline = []byte{'\n'}

// card sums up a block.
type card struct {
	first, lines int64
	bytes        int64 // of text
	minAt, maxAt int64 // Unix nanoseconds
	streams      uint8 // bit set
	byLevel      [levelCount]int64
}

// chunk is a block that is being filled, or waits to be committed. Its run's lock guards it; only
// the bytes that a snapshot covers may be read without.
type chunk struct {
	n       int64 // place among the chunks of the run
	first   int64
	base    int64
	lastAt  int64
	meta    []byte
	text    []byte
	byLevel [levelCount]int64
	streams uint8

	tailLines int64                      // how many of its lines the tail rows in the file cover
	tailBytes int64                      // the text of those
	tails     struct{ first, end int64 } // places of those tail rows: first <= n < end
	inFlight  bool                       // the flusher is writing it

	// refs counts the owner and the snapshots; at zero the buffers go back to the pool.
	refs atomic.Int32
}

// buffers recycles the text and metadata of full-grown chunks.
type buffers struct {
	text, meta sync.Pool
}

func newChunk(n, first int64, at int64) *chunk {
	c := &chunk{n: n, first: first, base: at, lastAt: at}
	c.refs.Store(1)
	return c
}

func (c *chunk) lines() int64 { return int64(len(c.meta) / metaBytes) }
func (c *chunk) size() int64  { return int64(len(c.text) + len(c.meta)) }

// uncovered is how much of it neither a chunk row nor tail rows cover.
func (c *chunk) uncovered() int64 { return c.size() - c.tailBytes - c.tailLines*metaBytes }

// append adds a line. at is not before the chunk's last.
func (c *chunk) append(text []byte, at int64, flags uint8, pool *buffers) {
	c.grow(len(text)+1, pool)
	c.text = append(append(c.text, text...), '\n')
	c.meta = binary.LittleEndian.AppendUint64(c.meta, uint64(at-c.base)<<8|uint64(flags))
	c.lastAt = at
	c.byLevel[flags&metaLevel>>metaLevelAt]++
	c.streams |= 1 << (flags & metaStream)
}

// snapshot gives what the chunk holds now; the block stays valid until release.
func (c *chunk) snapshot() block {
	c.refs.Add(1)
	return block{first: c.first, base: c.base, meta: c.meta[:len(c.meta):len(c.meta)], text: c.text[:len(c.text):len(c.text)]}
}

func (c *chunk) release(pool *buffers) {
	if c.refs.Add(-1) == 0 {
		pool.put(c)
	}
}

func (c *chunk) card() card {
	return card{first: c.first, lines: c.lines(), bytes: int64(len(c.text)), minAt: c.base, maxAt: c.lastAt, streams: c.streams, byLevel: c.byLevel}
}

const (
	smallText = 4 << 10
	fullText  = chunkBytes + maxLineBytes + 1
	smallMeta = 64 * metaBytes
	fullMeta  = chunkBytes / 4

	// busyChunk is how fast a run fills a chunk if the next one need not grow: it is as good as full.
	busyChunk = time.Second
)

// growFull gives an empty chunk full-grown buffers at once.
func (c *chunk) growFull(pool *buffers) {
	c.text, c.meta = fullGrown(fullText, &pool.text), fullGrown(fullMeta, &pool.meta)
}

// grow makes room for n more bytes of text and one line of metadata: by doubling, so that a quiet run costs little, and
// at last to a full-grown buffer from the pool.
func (c *chunk) grow(n int, pool *buffers) {
	if len(c.text)+n > cap(c.text) {
		c.text = regrow(c.text, max(2*cap(c.text), smallText, len(c.text)+n), fullText, &pool.text)
	}
	if len(c.meta)+metaBytes > cap(c.meta) {
		c.meta = regrow(c.meta, max(2*cap(c.meta), smallMeta), fullMeta, &pool.meta)
	}
}

func regrow(old []byte, want, full int, pool *sync.Pool) []byte {
	var grown []byte
	switch {
	case want < full/2:
		grown = make([]byte, 0, want)
	case want <= full:
		grown = fullGrown(full, pool)
	default:
		grown = make([]byte, 0, want)
	}
	return append(grown, old...)
}

// fullGrown gives an empty buffer of the given size.
func fullGrown(size int, pool *sync.Pool) []byte {
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

// card sums up a block.
func (b *block) card() card {
	c := card{first: b.first, lines: b.lines(), bytes: int64(len(b.text))}
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

// lineEnd gives the offset of the newline of the line that starts at off.
func (b *block) lineEnd(off int) int {
	return off + bytes.IndexByte(b.text[off:], '\n')
}
