package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// MetaBytes is the size of the metadata of a line: its flags in the lowest 8 bits, and above them the time in ns
	// since the chunk's first line.
	MetaBytes = 8
	// MaxBytes bounds the text and metadata that Unpack returns. A chunk is at most half as large.
	MaxBytes = 1 << 20

	windowBytes = 512 << 10 // the window of the compressor: a chunk fits into it
	decoders    = 4         // concurrent calls of Unpack; further calls wait
)

// The codecs of a Stored.
const (
	Raw    = 0 // as it is in memory
	Packed = 1 // zstd; the metadata as varints before that
)

// ErrDamaged is wrapped by the errors of Unpack.
var ErrDamaged = errors.New("damaged")

// A Header describes the lines of a stored chunk or tail row.
type Header struct {
	ID    int64 // of the row
	First int64 // number of the first line
	Base  int64 // time of the first line in Unix nanoseconds
	Lines int64
	Bytes int64 // size of the text
}

// A Stored is the stored form of some lines.
type Stored struct {
	Codec int64
	Sum   int64 // checksum of the header and of all that follows; negative in rows from before there were checksums
	Meta  []byte
	Body  []byte
}

// Size returns the number of bytes that are stored.
func (s *Stored) Size() int64 { return int64(len(s.Meta) + len(s.Body)) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the checksum of the header and the stored form.
func (s *Stored) Checksum(c Header) int64 {
	var head [7 * 8]byte
	for i, v := range []int64{c.ID, c.First, c.Base, c.Lines, c.Bytes, s.Codec, int64(len(s.Meta))} {
		binary.LittleEndian.PutUint64(head[8*i:], uint64(v))
	}
	sum := crc32.Checksum(head[:], castagnoli)
	return int64(crc32.Update(crc32.Update(sum, castagnoli, s.Meta), castagnoli, s.Body))
}

// A Packer packs and unpacks. The zero value is ready to use, by several goroutines. It makes its compressor and
// decompressor when they are first needed, since both take memory.
type Packer struct {
	compressor   lazy[*zstd.Encoder]
	decompressor lazy[*zstd.Decoder]
	scratch      sync.Pool // of *[]byte, for metadata
}

// A lazy is a value that is made once.
type lazy[T any] struct {
	once  sync.Once
	value T
}

func (l *lazy[T]) get(build func() (T, error)) T {
	l.once.Do(func() {
		value, err := build()
		if err != nil {
			panic(err) // the options are invalid
		}
		l.value = value
	})
	return l.value
}

func newCompressor() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(windowBytes), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false),
		zstd.WithAllLitEntropyCompression(true)) // for filters, in which nothing repeats
}

func newDecompressor() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(decoders), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxBytes), zstd.WithDecodeAllCapLimit(true))
}

// Pack returns the packed form of lines. meta has MetaBytes for each.
func (p *Packer) Pack(c Header, meta, text []byte) *Stored {
	scratch, _ := p.scratch.Get().(*[]byte)
	if scratch == nil {
		scratch = new([]byte)
	}
	*scratch = appendMeta((*scratch)[:0], meta)
	s := &Stored{Codec: Packed, Meta: p.Compress(*scratch), Body: p.Compress(text)}
	p.scratch.Put(scratch)
	s.Sum = s.Checksum(c)
	return s
}

// Unpack returns the metadata and the text of lines. The slices of a Raw form are those of s. The error wraps
// ErrDamaged.
func (p *Packer) Unpack(c Header, s *Stored) (meta, text []byte, err error) {
	switch {
	case s.Sum >= 0 && s.Sum != s.Checksum(c), s.Sum < 0 && s.Codec != Raw:
		return nil, nil, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	case s.Codec == Raw:
		return s.Meta, s.Body, nil
	case s.Codec != Packed || c.Lines < 0 || c.Bytes < c.Lines || c.Bytes > MaxBytes || c.Bytes+c.Lines*MetaBytes > MaxBytes:
		return nil, nil, fmt.Errorf("%w: codec %d with %d lines of %d bytes", ErrDamaged, s.Codec, c.Lines, c.Bytes)
	}
	scratch, _ := p.scratch.Get().(*[]byte)
	if scratch == nil {
		scratch = new([]byte)
	}
	defer p.scratch.Put(scratch)
	*scratch = slices.Grow((*scratch)[:0], int(c.Lines)*maxPackedMeta)
	packed, err := p.decompress(s.Meta, *scratch)
	if err == nil {
		*scratch = packed
		meta, err = parseMeta(packed, int(c.Lines))
	}
	if err == nil {
		text, err = p.Decompress(s.Body, int(c.Bytes))
	}
	return meta, text, err
}

// PackFilter returns the stored form of the filter of a chunk, which is shorter than the filter if few of its bits are
// set, and its checksum.
func (p *Packer) PackFilter(id int64, bits []byte) (stored []byte, sum int64) {
	if stored = p.Compress(bits); len(stored) >= len(bits) {
		stored = bits
	}
	return stored, filterSum(id, stored)
}

// UnpackFilter returns a filter of size bytes. The error wraps ErrDamaged.
func (p *Packer) UnpackFilter(id int64, stored []byte, sum int64, size int) ([]byte, error) {
	switch {
	case sum != filterSum(id, stored):
		return nil, fmt.Errorf("%w: wrong checksum of a filter", ErrDamaged)
	case len(stored) == size:
		return stored, nil
	}
	return p.Decompress(stored, size)
}

func filterSum(id int64, stored []byte) int64 {
	return (&Stored{Body: stored}).Checksum(Header{ID: id})
}

// Compress returns data compressed.
func (p *Packer) Compress(data []byte) []byte {
	return p.compressor.get(newCompressor).EncodeAll(data, make([]byte, 0, len(data)/8+64))
}

// Decompress returns the size bytes that were compressed. It allocates no more than that.
func (p *Packer) Decompress(packed []byte, size int) ([]byte, error) {
	data, err := p.decompress(packed, make([]byte, 0, size))
	if err == nil && len(data) != size {
		err = fmt.Errorf("%w: %d bytes of %d", ErrDamaged, len(data), size)
	}
	return data, err
}

// decompress appends to into, up to its capacity.
func (p *Packer) decompress(packed, into []byte) ([]byte, error) {
	data, err := p.decompressor.get(newDecompressor).DecodeAll(packed, into)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return data, err
}

// maxPackedMeta is the largest size of the packed metadata of a line: a varint of 56 bits, and the flags.
const maxPackedMeta = 9

// appendMeta appends metadata in the form that is compressed: the time of each line since the line before it, as
// varints, and then the flags of each line.
func appendMeta(b, meta []byte) []byte {
	before := uint64(0)
	for i := 0; i+MetaBytes <= len(meta); i += MetaBytes {
		at := binary.LittleEndian.Uint64(meta[i:]) >> 8
		b = binary.AppendUvarint(b, (at-before)&(1<<56-1))
		before = at
	}
	for i := 0; i+MetaBytes <= len(meta); i += MetaBytes {
		b = append(b, meta[i])
	}
	return b
}

// parseMeta is the inverse of appendMeta.
func parseMeta(b []byte, lines int) ([]byte, error) {
	if len(b) < 2*lines {
		return nil, fmt.Errorf("%w: metadata too short", ErrDamaged)
	}
	times, flags := b[:len(b)-lines], b[len(b)-lines:]
	meta := make([]byte, 0, lines*MetaBytes)
	at := uint64(0)
	for _, f := range flags {
		step, n := binary.Uvarint(times)
		if n <= 0 {
			return nil, fmt.Errorf("%w: metadata", ErrDamaged)
		}
		times = times[n:]
		at += step
		meta = binary.LittleEndian.AppendUint64(meta, at<<8|uint64(f))
	}
	if len(times) > 0 {
		return nil, fmt.Errorf("%w: metadata too long", ErrDamaged)
	}
	return meta, nil
}
