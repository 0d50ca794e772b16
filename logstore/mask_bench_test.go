package logstore

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"pmcp/logstore/mask"
)

// BenchmarkMasking measures what masking costs for lines without secrets, with ten values to search
// for, by storing lines with and without masking in turns.
func BenchmarkMasking(b *testing.B) {
	for _, way := range ways() {
		b.Run(way.name, func(b *testing.B) { compare(b, storeMasking, way.fill) })
	}
}

// storeMasking opens a Store with or without masking.
func storeMasking(b *testing.B, masking bool) (*Store, int64) {
	o := Options{Path: filepath.Join(b.TempDir(), "pmcp.db"), MaxBytes: 1 << 40}
	if masking {
		o.Mask = mask.New()
		rnd := rand.New(rand.NewPCG(1, 2))
		env := make(map[string]string)
		for i := range 10 {
			env[fmt.Sprintf("TOKEN_%d", i)] = fmt.Sprintf("%016x%016x", rnd.Uint64(), rnd.Uint64())
		}
		o.Mask.LearnEnv(env)
	}
	s, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	return s, startRun(s, "/p", "mixed")
}
