package screen

import "bytes"

// maxPending bounds what is not drawn yet, in bytes.
const maxPending = 32 << 10

// postpone keeps p to be drawn later, if it is text and colours, and reports whether it does. Most output
// is that, and most of it scrolls off before it is viewed: drawing all of it takes a fifth of the time of
// its capture.
func (s *Screen) postpone(p []byte) bool {
	if s.state != ground || s.full() || s.main.top > 0 || s.main.bottom < s.rows {
		return false
	}
	end, ok := plain(s.pendingAt, p)
	if !ok {
		return false
	}
	if len(s.pending)+len(p) > maxPending {
		s.dropScrolled()
	}
	s.pending, s.pendingAt = append(s.pending, p...), end
	return true
}

// draw draws what is pending.
func (s *Screen) draw() {
	for p := s.pending; len(p) > 0; {
		p = p[s.feed(p):]
	}
	s.pending, s.pendingAt = s.pending[:0], ground
}

// dropScrolled drops what has scrolled off from what is pending, or draws all of it. After as many line
// ends as there are rows, each line is drawn below the last one, whatever was there before; after as many
// again, nothing else is left.
func (s *Screen) dropScrolled() {
	end := len(s.pending)
	for range 2*s.rows + 1 {
		if end = bytes.LastIndexByte(s.pending[:end], '\n'); end < 0 {
			break
		}
	}
	if end < 1 || s.pending[end-1] != '\r' || len(s.pending)-end > maxPending/2 {
		s.draw()
		return
	}
	s.pending = s.pending[:copy(s.pending, s.pending[end-1:])]
}

// plain returns the position in a sequence in which p ends, and reports whether p consists of text and of
// sequences for colours and the like, which change nothing that is kept. at is where p begins: in text, after
// ESC, or in the parameters. 0xc2 begins the control characters beyond ASCII.
func plain(at state, p []byte) (state, bool) {
	for _, special := range [3]byte{0x0e, 0x0f, 0xc2} {
		if bytes.IndexByte(p, special) >= 0 {
			return at, false
		}
	}
	for {
		if at == ground {
			next := bytes.IndexByte(p, 0x1b)
			if next < 0 {
				return at, true
			}
			at, p = escaped, p[next+1:]
		}
		if at == escaped && len(p) > 0 {
			if p[0] != '[' {
				return at, false
			}
			at, p = control, p[1:]
		}
		for len(p) > 0 && p[0] >= '0' && p[0] <= ';' {
			p = p[1:]
		}
		switch {
		case len(p) == 0:
			return at, true
		case p[0] != 'm':
			return at, false
		}
		at, p = ground, p[1:]
	}
}
