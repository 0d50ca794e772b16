package logstore

import "bytes"

// runReader gives the lines of one run that pass a filter, one by one, in one direction.
type runReader struct {
	meta    *runMeta
	source  *blockSource
	filter  *lineFilter
	forward bool

	head    *Line // the next line; nil: the run is exhausted
	timeEnd bool  // exhausted because all that is left is beyond the filter's times
	pos     int64 // forward: last line passed; backward: all lines beyond it are passed
	scanned int64

	block *block
	index int64 // in block, of the next line to look at
	at    int   // forward: offset of its text; backward: offset of its end
}

// advance moves head to the next line that passes.
func (r *runReader) advance() error {
	for {
		if r.block == nil {
			if err := r.fetch(); err != nil {
				return err
			}
			if r.block == nil {
				r.head = nil
				return nil
			}
		}
		var found, end bool
		if r.forward {
			found, end = r.scanForward()
		} else {
			found, end = r.scanBackward()
		}
		if found {
			return nil
		}
		r.block = nil
		if end {
			r.head, r.timeEnd = nil, true
			return nil
		}
	}
}

// fetch gets the next block and stands on its first line of interest.
func (r *runReader) fetch() (err error) {
	if r.forward {
		r.block, err = r.source.after(r.pos)
		if err != nil || r.block == nil {
			return err
		}
		r.index, r.at = 0, 0
		for skip := r.pos + 1 - r.block.first; r.index < skip; r.index++ {
			r.at += bytes.IndexByte(r.block.text[r.at:], '\n') + 1
		}
		return nil
	}
	r.block, err = r.source.before(r.pos + 1)
	if err != nil || r.block == nil {
		return err
	}
	r.index, r.at = r.block.lines()-1, len(r.block.text)
	for last := r.pos - r.block.first; r.index > last; r.index-- {
		r.at = bytes.LastIndexByte(r.block.text[:r.at-1], '\n') + 1
	}
	return nil
}

// scanForward looks for a line that passes in what is left of the block. end tells that all further lines are too late.
func (r *runReader) scanForward() (found, end bool) {
	b := r.block
	for ; r.index < b.lines(); r.index++ {
		at := b.timeAt(r.index)
		if at >= r.filter.until {
			return false, true
		}
		n := bytes.IndexByte(b.text[r.at:], '\n')
		text := b.text[r.at : r.at+n]
		r.scanned++
		r.at += n + 1
		r.pos = b.first + r.index
		if at >= r.filter.since && r.filter.takes(b.metaAt(r.index)) {
			l := b.line(r.meta.id, r.index, text)
			r.head = &l
			r.index++
			return true, false
		}
	}
	return false, false
}

// scanBackward is scanForward towards the start.
func (r *runReader) scanBackward() (found, end bool) {
	b := r.block
	for ; r.index >= 0; r.index-- {
		at := b.timeAt(r.index)
		if at < r.filter.since {
			return false, true
		}
		start := bytes.LastIndexByte(b.text[:r.at-1], '\n') + 1
		text := b.text[start : r.at-1]
		r.scanned++
		r.at = start
		r.pos = b.first + r.index - 1
		if at < r.filter.until && r.filter.takes(b.metaAt(r.index)) {
			l := b.line(r.meta.id, r.index, text)
			r.head = &l
			r.index--
			return true, false
		}
	}
	return false, false
}

// position is where the run stands: the number of the last line before the position. A head that
// was not taken is still to come.
func (r *runReader) position() int64 {
	switch {
	case r.head == nil:
		return r.pos
	case r.forward:
		return r.head.Number - 1
	default:
		return r.head.Number
	}
}
