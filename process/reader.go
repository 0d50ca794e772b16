package process

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readSize is the read buffer of one stream: half a default pipe.
	readSize = 32 << 10
	// silence after which an unfinished line (a prompt) is handed on as it is.
	silence = 200 * time.Millisecond
	// pipeMax is the most that a pipe can hold (pipe-max-size; root could set
	// more). Who has read so much since a moment has read what was in it then.
	pipeMax = 1 << 20
	// ttySilence is how long a terminal must be silent to count as empty: what
	// is written to it arrives through a kernel thread, a moment later.
	ttySilence = 30 * time.Millisecond
	// ttyPatience is how long that silence is waited for: what outlives the
	// leader may never be silent.
	ttyPatience = 500 * time.Millisecond
)

// A sink takes the bytes of one stream. p is only lent. Empty p says that the
// stream has been silent for 200 ms after an unfinished line.
type sink func(at time.Time, p []byte)

// reader moves one stream of a child to its sink.
type reader struct {
	file *os.File
	tty  bool
	// quiet is how long the stream must be silent to count as empty: 0 for a
	// pipe, where what is written is there at once.
	quiet time.Duration
	sink  sink
	// leaderGone is set once the run's first process has ended; from then on
	// the reader looks for the moment at which all it had written is read.
	leaderGone atomic.Bool
	// leader is closed after that, once the reader has been woken: from then on
	// only the reader itself sets deadlines.
	leader chan struct{}
	// drained is closed when all that the leader had written is read.
	drained chan struct{}

	unfinished bool // the last byte was not the end of a line
}

func newReader(file *os.File, tty bool, to sink) *reader {
	r := &reader{file: file, tty: tty, sink: to, leader: make(chan struct{}), drained: make(chan struct{})}
	if tty {
		r.quiet = ttySilence
	}
	return r
}

// run reads until the end of the stream: every writer has closed it. It owns
// the file.
func (r *reader) run() {
	defer r.close()
	buf := make([]byte, readSize)
	ended := r.follow(buf, r.leaderGone.Load)
	if !ended {
		<-r.leader // its deadline must not come while drain reads
		ended = r.drain(buf)
	}
	r.flush() // before anybody hears of the end
	close(r.drained)
	if !ended { // a process that outlives the leader holds the stream
		r.follow(buf, func() bool { return false })
	}
}

// close closes the file. A terminal ends when the last process closes it, which
// programs do before they exit: closing our end at once would hang up on them,
// and SIGHUP would end the leader instead of its own exit.
func (r *reader) close() {
	if r.tty {
		<-r.leader
	}
	_ = r.file.Close()
}

// follow reads as it comes until stop holds after a wake-up, or to the end of
// the stream, which it tells.
func (r *reader) follow(buf []byte, stop func() bool) (ended bool) {
	for !stop() {
		deadline := time.Time{}
		if r.unfinished {
			deadline = time.Now().Add(silence)
		}
		_ = r.file.SetReadDeadline(deadline)
		if stop() { // leaderEnded may have come before our deadline replaced its
			return false
		}
		n, err := r.file.Read(buf)
		r.take(buf[:n])
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !stop() && r.flushSilent(buf) {
				return true
			}
		default: // io.EOF; EIO is how Linux ends a terminal; a closed file is a cut
			return true
		}
	}
	return false
}

// drain reads what the stream holds now, without waiting for more than what is
// on its way through a terminal. It says whether the stream ended at that.
func (r *reader) drain(buf []byte) (ended bool) {
	began := time.Now()
	for total := 0; total < pipeMax; {
		wait := r.quiet
		if time.Since(began) >= ttyPatience {
			wait = 0
		}
		n, err := r.readAvailable(buf, wait)
		r.take(buf[:n])
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

// take hands bytes on.
func (r *reader) take(p []byte) {
	if len(p) > 0 {
		r.sink(time.Now(), p)
		r.unfinished = p[len(p)-1] != '\n'
	}
}

// flushSilent flushes if there is nothing to read. On a busy machine a deadline
// has passed before it is looked at, and os.File then does not even try. It says
// whether the stream ended.
func (r *reader) flushSilent(buf []byte) (ended bool) {
	n, err := r.readAvailable(buf, 0)
	r.take(buf[:n])
	if errors.Is(err, errEmpty) {
		r.flush()
		return false
	}
	return err != nil
}

// flush says that an unfinished line is not being finished at the moment.
func (r *reader) flush() {
	if r.unfinished {
		r.sink(time.Now(), nil)
		r.unfinished = false
	}
}

// leaderEnded wakes the reader so that it empties the pipe and closes drained.
// To be called once.
func (r *reader) leaderEnded() {
	r.leaderGone.Store(true)
	_ = r.file.SetReadDeadline(time.Unix(1, 0))
	close(r.leader)
}

// cut ends the reader although somebody still holds the other end.
func (r *reader) cut() { _ = r.file.Close() }

// errEmpty says that a stream holds nothing at the moment.
var errEmpty = errors.New("stream is empty")

// readAvailable reads what is there, waiting for at most wait. A deadline alone
// would not do: once it has passed, os.File does not even try.
func (r *reader) readAvailable(buf []byte, wait time.Duration) (n int, err error) {
	deadline := time.Time{}
	if wait > 0 {
		deadline = time.Now().Add(wait)
	}
	_ = r.file.SetReadDeadline(deadline)
	raw, err := r.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) (done bool) {
		for {
			n, readErr = unix.Read(int(fd), buf)
			if !errors.Is(readErr, unix.EINTR) {
				break
			}
		}
		return wait == 0 || !errors.Is(readErr, syscall.EAGAIN)
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errEmpty
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
