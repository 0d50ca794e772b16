package project

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pmcp/process/screen"
	"pmcp/server/args"
)

// A Screen is what the terminal of a run shows, with its secrets masked.
type Screen struct {
	// Rows are the rows, without blank ones at the end. Rows in which a secret goes on are one.
	Rows []string
	// At is the index of the row with the cursor; it may be beyond the last one.
	At int
	// Row and Col are the position of the cursor, from 1, on a terminal of Height and Width.
	Row, Col, Height, Width int
	Hidden                  bool // the cursor
	// Full means that a program has taken the whole screen, so that what it draws is no output.
	Full    bool
	Changed time.Time
}

// Screen returns what the terminal of the latest run of name shows.
func (p *Project) Screen(ctx context.Context, name string) (Screen, error) {
	if err := p.requireHere(ctx, name); err != nil {
		return Screen{}, err
	}
	v, err := p.o.Manager.Screen(name)
	if err != nil {
		return Screen{}, err
	}
	s := Screen{Row: v.Row + 1, Col: v.Col + 1, Height: len(v.Rows), Width: v.Cols, Hidden: v.Hidden, Full: v.Full, Changed: v.Changed}
	for y := 0; y < len(v.Rows); {
		end := y + 1
		for end < len(v.Rows) && v.Joined[end-1] {
			end++
		}
		if v.Row >= y && v.Row < end {
			s.At = len(s.Rows) + v.Row - y
		}
		rows := v.Rows[y:end]
		if whole := strings.Join(rows, ""); p.o.Mask.Text(whole) != whole {
			rows, s.At = []string{p.o.Mask.Text(whole)}, min(s.At, len(s.Rows))
		}
		s.Rows = append(s.Rows, rows...)
		y = end
	}
	for len(s.Rows) > 0 && s.Rows[len(s.Rows)-1] == "" {
		s.Rows = s.Rows[:len(s.Rows)-1]
	}
	return s, nil
}

const (
	// maxKeys bounds the keys of one call.
	maxKeys = 100
	// A key is pressed once the program has redrawn the screen for the one before and has paused for
	// keyQuiet, or after keyMost: some take what comes at once for one key.
	keyQuiet = 20 * time.Millisecond
	keyMost  = 100 * time.Millisecond
	// escapeMost replaces keyMost after esc, with which the sequences of other keys begin: programs wait
	// up to 500 ms for the rest.
	escapeMost = 600 * time.Millisecond
)

// checkKeys returns an error that names the first unknown key.
func checkKeys(keys []string) error {
	if len(keys) > maxKeys {
		return fmt.Errorf("argument keys: %d keys, at most %d are allowed", len(keys), maxKeys)
	}
	for i, key := range keys {
		if _, known := screen.Key(key, false); !known {
			return fmt.Errorf("argument keys[%d]: unknown key %s (keys: enter, tab, shift-tab, esc, space, backspace, delete, insert, up, down, left, right, home, end, page-up, page-down, f1 to f12, single characters, and ctrl-, alt- or shift- before one: ctrl-c); nothing was sent",
				i, args.QuoteWithNearest(strings.ToLower(key), screen.KeyNames()))
		}
	}
	return nil
}

// press presses keys, one after the other, after what was sent before.
func (d *dialogue) press(ctx context.Context, keys []string) error {
	escape := false
	for i, key := range keys {
		if d.bytes > 0 {
			d.awaitPressed(escape)
		}
		v, err := d.p.o.Manager.Screen(d.name)
		if err != nil {
			return err
		}
		sequence, _ := screen.Key(key, v.AppKeys)
		escape = sequence == "\x1b"
		d.sent, d.pressed = time.Now(), true
		n, err := d.p.o.Manager.Input(ctx, d.name, []byte(sequence), false)
		if d.bytes += n; err != nil {
			return fmt.Errorf("%w (%d of %d keys were pressed)", err, i, len(keys))
		}
	}
	return nil
}

// awaitPressed waits until the next key can be pressed.
func (d *dialogue) awaitPressed(escape bool) {
	pressed, most := time.Now(), keyMost
	if escape {
		most = escapeMost
	}
	tick := time.NewTicker(keyQuiet / 2)
	defer tick.Stop()
	for time.Since(pressed) < most && d.running.Err() == nil {
		v, err := d.p.o.Manager.Screen(d.name)
		if err != nil || !escape && v.Changed.After(pressed) && time.Since(v.Changed) >= keyQuiet {
			return
		}
		select {
		case <-tick.C:
		case <-d.running.Done():
		}
	}
}
