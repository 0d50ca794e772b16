package logstore

import (
	"cmp"
	"container/heap"
)

// readers is a heap of the runs with a next line, that line deciding.
type readers struct {
	backward bool
	list     []*runReader
	all      []openedRun // the exhausted ones as well
}

type openedRun struct {
	place  *runPlace
	reader *runReader
	empty  bool // no line of it passes
}

func (h *readers) push(r *runReader) { heap.Push(h, r) }

// fix restores the order after the first reader has moved.
func (h *readers) fix() {
	if h.list[0].head == nil {
		heap.Pop(h)
		return
	}
	heap.Fix(h, 0)
}

func (h *readers) Len() int      { return len(h.list) }
func (h *readers) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *readers) Push(x any)    { h.list = append(h.list, x.(*runReader)) }

func (h *readers) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}

// Less orders by time, then by run, so that both directions give the same order.
func (h *readers) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	c := cmp.Or(a.head.At.Compare(b.head.At), a.meta.order(b.meta))
	if h.backward {
		return c > 0
	}
	return c < 0
}
