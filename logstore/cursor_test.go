package logstore

import (
	"fmt"
	"testing"
)

func TestCursorSurvivesEncoding(t *testing.T) {
	c := cursor{1<<16 | 1: 0, 5<<16 | 3: 77, 5<<16 | 4: 1 << 40}
	got, err := parseCursor(c.String())
	if err != nil || fmt.Sprint(got) != fmt.Sprint(c) {
		t.Fatalf("got %v, %v; want %v", got, err, c)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(cursor{1: 2, 3: 4}.String())
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			return
		}
		again, err := parseCursor(c.String())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(c) {
			t.Fatalf("got %v, %v after encoding %v", again, err, c)
		}
	})
}
