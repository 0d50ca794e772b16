package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// sample returns the metadata and text of n lines, and their header.
func sample(n int, seed uint64) (c Header, meta, text []byte) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := uint64(0)
	for i := range n {
		at += rnd.Uint64N(1 << (rnd.Uint64N(30)))
		meta = binary.LittleEndian.AppendUint64(meta, at<<8|rnd.Uint64N(128))
		text = fmt.Appendf(text, "line %d of %x\n", i, rnd.Uint32())
	}
	return Header{ID: 7 << 24, First: 100, Base: 1e18, Lines: int64(n), Bytes: int64(len(text))}, meta, text
}

func TestUnpackReturnsWhatWasPacked(t *testing.T) {
	var p Packer
	for _, n := range []int{1, 2, 10, 10_000} {
		c, meta, text := sample(n, uint64(n))
		s := p.Pack(c, meta, text)
		gotMeta, gotText, err := p.Unpack(c, s)
		if err != nil || !bytes.Equal(gotMeta, meta) || !bytes.Equal(gotText, text) {
			t.Errorf("%d lines: got %d and %d bytes, %v; want the %d and %d packed", n, len(gotMeta), len(gotText), err, len(meta), len(text))
		}
		t.Logf("%d lines: %d bytes of text and %d of metadata became %d and %d", n, len(text), len(meta), len(s.Body), len(s.Meta))
	}
}

// TestUnpackKeepsTimesThatGoBack packs times that decrease, as a clock that was set back may leave in an old file.
func TestUnpackKeepsTimesThatGoBack(t *testing.T) {
	var p Packer
	var meta []byte
	for _, at := range []uint64{5, 3, 1<<56 - 1, 0} {
		meta = binary.LittleEndian.AppendUint64(meta, at<<8|1)
	}
	c := Header{Lines: 4, Bytes: 4}
	got, _, err := p.Unpack(c, p.Pack(c, meta, []byte("\n\n\n\n")))
	if err != nil || !bytes.Equal(got, meta) {
		t.Errorf("got %x, %v; want %x", got, err, meta)
	}
}

// TestUnpackReportsEveryFlippedBit flips each bit of a packed chunk and of its header.
func TestUnpackReportsEveryFlippedBit(t *testing.T) {
	var p Packer
	c, meta, text := sample(20, 1)
	s := p.Pack(c, meta, text)
	try := func(what string) {
		t.Helper()
		if _, _, err := p.Unpack(c, s); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s flipped: got error %v, want ErrDamaged", what, err)
		}
	}
	for _, part := range [][]byte{s.Meta, s.Body} {
		for bit := range 8 * len(part) {
			part[bit/8] ^= 1 << (bit % 8)
			try(fmt.Sprintf("bit %d", bit))
			part[bit/8] ^= 1 << (bit % 8)
		}
	}
	for i, field := range []*int64{&c.ID, &c.First, &c.Base, &c.Lines, &c.Bytes, &s.Codec, &s.Sum} {
		for bit := range 64 {
			*field ^= 1 << bit
			try(fmt.Sprintf("bit %d of number %d", bit, i))
			*field ^= 1 << bit
		}
	}
}

// TestUnpackOfForgedChunkIsBounded gives the decoder damaged data with a checksum that fits, and checks what it
// allocates.
func TestUnpackOfForgedChunkIsBounded(t *testing.T) {
	var p Packer
	c, meta, text := sample(1000, 2)
	bomb := p.Compress(make([]byte, 64<<20))
	forge := func(c Header, s Stored) {
		t.Helper()
		s.Sum = s.Checksum(c)
		if _, _, err := p.Unpack(c, &s); !errors.Is(err, ErrDamaged) {
			t.Errorf("got error %v, want ErrDamaged", err)
		}
	}
	s := p.Pack(c, meta, text)
	forge(c, Stored{Codec: Packed, Meta: s.Meta, Body: bomb})
	forge(c, Stored{Codec: Packed, Meta: bomb, Body: s.Body})
	forge(c, Stored{Codec: 2, Meta: s.Meta, Body: s.Body})
	large := c
	large.Bytes = MaxBytes + 1
	forge(large, *s)
	large.Bytes, large.Lines = 1<<62, 1<<62
	forge(large, *s)
	rnd := rand.New(rand.NewPCG(3, 3))
	const rounds = 500
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		damaged := Stored{Codec: Packed, Meta: bytes.Clone(s.Meta), Body: bytes.Clone(s.Body)}
		for range 3 {
			damaged.Meta[rnd.IntN(len(damaged.Meta))] ^= 1 << rnd.IntN(8)
			damaged.Body[rnd.IntN(len(damaged.Body))] ^= 1 << rnd.IntN(8)
		}
		damaged.Sum = damaged.Checksum(c)
		gotMeta, gotText, err := p.Unpack(c, &damaged)
		if err == nil && (int64(len(gotMeta)) != c.Lines*MetaBytes || int64(len(gotText)) != c.Bytes) {
			t.Fatalf("got %d and %d bytes, want as many as the header says", len(gotMeta), len(gotText))
		}
		_, _ = p.Decompress(bomb, int(c.Bytes))
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > MaxBytes {
		t.Errorf("got %d bytes allocated for each damaged chunk, want at most %d", got, MaxBytes)
	}
}
