package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

const (
	// readSize is the size of a read buffer: half a default pipe.
	readSize = 32 << 10
	// flushDelay is the silence after which an unfinished line (a prompt) is
	// flushed.
	flushDelay = 200 * time.Millisecond
	// pipeMax is the most that a pipe can hold (pipe-max-size; root could set
	// more). After reading that much from a moment on, a reader has read
	// everything that the pipe held at that moment.
	pipeMax = 1 << 20
	// ttyQuiet is how long a terminal must be silent to count as empty: output
	// arrives through a kernel thread, a moment after it was written.
	ttyQuiet = 30 * time.Millisecond
	// ttyDrainTimeout bounds the wait for that silence: a process that outlives
	// the leader may never be silent.
	ttyDrainTimeout = 500 * time.Millisecond
)

// A sink receives the bytes of one stream. It must not retain p, but may change it. An empty p
// means that the stream has been silent for 200 ms after an unfinished line.
type sink func(at time.Time, p []byte)

// readBuffers holds read buffers of readSize. A reader takes one only while there is something to
// read, so that silent streams cost no memory.
var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// reader copies one stream of a child to its sink.
type reader struct {
	file *os.File
	tty  bool
	// quiet is how long the stream must be silent to count as empty: 0 for a
	// pipe, whose data arrives at once.
	quiet time.Duration
	sink  sink
	// leaderGone is set once the run's first process has exited. The reader then
	// drains what that process wrote.
	leaderGone atomic.Bool
	// leader is closed after leaderGone is set and the reader has been woken. From
	// then on only the reader itself sets deadlines.
	leader chan struct{}
	// drained is closed when everything that the leader wrote has been read.
	drained chan struct{}

	unfinished bool // the last byte did not end a line
}

func newReader(file *os.File, tty bool, to sink) *reader {
	r := &reader{file: file, tty: tty, sink: to, leader: make(chan struct{}), drained: make(chan struct{})}
	if tty {
		r.quiet = ttyQuiet
	}
	return r
}

// run reads until every writer has closed the stream. It owns the file.
func (r *reader) run() {
	defer r.close()
	ended := r.follow(r.leaderGone.Load)
	if !ended {
		<-r.leader // the deadline that leaderEnded sets must not interrupt drain
		ended = r.drain()
	}
	r.flush() // flush before the end of the stream is visible
	close(r.drained)
	if !ended { // a process that outlives the leader holds the stream
		r.follow(func() bool { return false })
	}
}

// close closes the file. A terminal reports its end when the last process closes
// it, and programs close it before they exit. Closing our end at once would hang
// up the terminal, and SIGHUP would end the leader before its own exit.
func (r *reader) close() {
	if r.tty {
		<-r.leader
	}
	_ = r.file.Close()
}

// follow reads until stop returns true after a wake-up, or until the stream ends.
// It reports whether the stream ended.
func (r *reader) follow(stop func() bool) (ended bool) {
	for !stop() {
		deadline := time.Time{}
		if r.unfinished {
			deadline = time.Now().Add(flushDelay)
		}
		_ = r.file.SetReadDeadline(deadline)
		if stop() { // leaderEnded may have set its deadline before this loop replaced it
			return false
		}
		_, err := r.read(true)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !stop() && r.flushIfEmpty() {
				return true
			}
		default: // io.EOF; EIO, which ends a terminal on Linux; a file closed by forceClose
			return true
		}
	}
	return false
}

// drain reads what the stream holds now. It waits only for output that is on its
// way through a terminal. It reports whether the stream ended.
func (r *reader) drain() (ended bool) {
	began := time.Now()
	for total := 0; total < pipeMax; {
		wait := r.quiet
		if time.Since(began) >= ttyDrainTimeout {
			wait = 0
		}
		n, err := r.readAvailable(wait)
		total += n
		if errors.Is(err, errEmpty) {
			break
		}
		if err != nil {
			return true
		}
	}
	return false
}

func (r *reader) deliver(p []byte) {
	if len(p) > 0 {
		r.unfinished = p[len(p)-1] != '\n'
		r.sink(time.Now(), p)
	}
}

// flushIfEmpty flushes if there is nothing to read. On a busy machine the
// deadline may pass before the read begins, and os.File then does not even try
// to read. It reports whether the stream ended.
func (r *reader) flushIfEmpty() (ended bool) {
	_, err := r.readAvailable(0)
	if errors.Is(err, errEmpty) {
		r.flush()
		return false
	}
	return err != nil
}

// flush passes an empty slice to the sink if the last line is unfinished.
func (r *reader) flush() {
	if r.unfinished {
		r.sink(time.Now(), nil)
		r.unfinished = false
	}
}

// leaderEnded makes the reader drain the stream and close drained. It must be
// called only once.
func (r *reader) leaderEnded() {
	r.leaderGone.Store(true)
	_ = r.file.SetReadDeadline(time.Unix(1, 0))
	close(r.leader)
}

// forceClose ends the reader even if a process still holds the other end of the
// stream.
func (r *reader) forceClose() { _ = r.file.Close() }

// errEmpty reports that a stream holds nothing at the moment.
var errEmpty = errors.New("stream is empty")

// readAvailable delivers the bytes that have arrived, and waits for the first of them
// at most for wait.
func (r *reader) readAvailable(wait time.Duration) (n int, err error) {
	deadline := time.Time{}
	if wait > 0 {
		deadline = time.Now().Add(wait)
	}
	_ = r.file.SetReadDeadline(deadline)
	n, err = r.read(wait > 0)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errEmpty
	}
	return n, err
}

// read delivers the bytes that have arrived. If there are none, it waits for them until
// the deadline or, without waits, returns errEmpty.
func (r *reader) read(waits bool) (n int, err error) {
	var buf *[readSize]byte
	n, err = receive(r.file, waits, func() []byte {
		if buf == nil {
			buf = readBuffers.Get().(*[readSize]byte)
		}
		return buf[:]
	}, func() {
		readBuffers.Put(buf)
		buf = nil
	})
	if buf != nil {
		r.deliver(buf[:n])
		readBuffers.Put(buf)
	}
	return n, err
}

// receive reads the bytes that have arrived at file into the buffer from take. If there are
// none, it calls release and waits for them until file's deadline or, without waits, returns
// errEmpty. A deadline alone is not enough not to wait: once it has passed, os.File does not
// even try to read.
func receive(file *os.File, waits bool, take func() []byte, release func()) (n int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) (done bool) {
		buf := take()
		n, readErr = proctab.RetryEINTR(func() (int, error) { return unix.Read(int(fd), buf) })
		if waits && errors.Is(readErr, syscall.EAGAIN) {
			release()
			return false
		}
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(readErr, syscall.EAGAIN):
		return 0, errEmpty
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
