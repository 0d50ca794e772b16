package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

const (
	// maxLogFiles bounds the log files of one run that are read at once, and
	// maxLogMembers the processes of its tree whose files are looked up.
	maxLogFiles   = 4
	maxLogMembers = 64
	// maxLogEnds bounds the files of ended runs whose ends are known.
	maxLogEnds = 64
	// logFilesPause is the pause between two lookups of the files.
	logFilesPause = time.Second
	// maxLogBacklog is how much of the end of a file is read when the file is found,
	// in bytes, maxLogRead how much is read of it at a time, and maxLogLine the
	// longest unfinished line that is kept back.
	maxLogBacklog = 1 << 20
	maxLogRead    = 1 << 20
	// maxLogTail is how much of a file is read once no process holds it, in bytes.
	maxLogTail = 64 << 20
	maxLogLine = 16 << 10
	// fileClockLag is how far the time of a file may be behind the clock: file systems
	// take it from the last tick.
	fileClockLag = 50 * time.Millisecond
)

// logFiles reads the files that the processes of a run in the background have as
// their standard output and standard error: a daemon writes its log there once it has
// left the pipes. A file is read if it is a regular file of this user that a member of
// the tree holds open for writing. Only lines that were written since the run began
// are read: from the beginning of a file; of an older one to which a process appends, from
// where an earlier run was read to, or from the present end.
type logFiles struct {
	run    *Run
	files  []*logFile
	looked time.Time
}

// logFile is one file. Its name may belong to another file by now.
type logFile struct {
	file   *os.File
	info   os.FileInfo
	born   time.Time // zero if it is not known
	stream uint8
	offset int64
	rest   []byte    // the line that is not finished yet
	at     time.Time // when rest grew
	held   bool      // whether a process had it open at the last lookup
	hole   bool      // whether there may be a hole at offset
}

// logEnds are the ends of the files that ended runs have read: the next run of such a
// program may append to the same file.
type logEnds struct {
	mu    sync.Mutex
	files []logEnd // the latest maxLogEnds
}

type logEnd struct {
	info   os.FileInfo
	born   time.Time // a later file may have the same inode
	offset int64
}

func (e logEnd) isOf(f *logFile) bool { return os.SameFile(e.info, f.info) && e.born.Equal(f.born) }

// add notes how far f was read.
func (e *logEnds) add(f *logFile) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.files = slices.DeleteFunc(e.files, func(end logEnd) bool { return end.isOf(f) })
	if len(e.files) == maxLogEnds {
		e.files = slices.Delete(e.files, 0, 1)
	}
	e.files = append(e.files, logEnd{f.info, f.born, f.offset})
}

// of returns how far f was read before; if that is not known, its present size.
func (e *logEnds) of(f *logFile) (offset int64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range e.files {
		if end.isOf(f) {
			offset = max(end.offset, f.info.Size()-maxLogBacklog)
			return min(offset, f.info.Size()), offset == end.offset
		}
	}
	return f.info.Size(), false
}

func newLogFiles(r *Run) *logFiles { return &logFiles{run: r} }

// read captures what is new, and reports whether there was anything. It looks up the
// files of members once a second, and at once if main has another.
func (l *logFiles) read(main int, members []proctab.Proc) (grown bool) {
	if now := time.Now(); now.Sub(l.looked) >= logFilesPause || l.unknown(main, 1) || l.unknown(main, 2) {
		l.looked = now
		l.find(members[:min(len(members), maxLogMembers)])
	}
	kept := l.files[:0]
	for _, f := range l.files {
		grown = l.capture(f) || grown
		if f.held {
			kept = append(kept, f)
			continue
		}
		l.end(f)
	}
	l.files = kept
	return grown
}

// unknown reports whether a descriptor of a process is a file that is not read.
func (l *logFiles) unknown(pid, fd int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	return err == nil && isOwnFile(info) && !slices.ContainsFunc(l.files, func(f *logFile) bool { return os.SameFile(f.info, info) })
}

// close captures the last lines.
func (l *logFiles) close() {
	for _, f := range l.files {
		l.end(f)
	}
}

// find adds the files that members hold open.
func (l *logFiles) find(members []proctab.Proc) {
	for _, f := range l.files {
		f.held = false
	}
	for _, p := range members {
		l.add(p.PID, 1, Stdout)
		l.add(p.PID, 2, Stderr) // nothing if both are one file
	}
}

// add adds the file behind a descriptor of a process, unless it is no log file.
func (l *logFiles) add(pid, fd int, stream uint8) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	info, err := os.Stat(path)
	if err != nil || !isOwnFile(info) {
		return
	}
	for _, f := range l.files {
		if os.SameFile(f.info, info) {
			f.held = true
			return
		}
	}
	flags, ok := openFlags(pid, fd)
	if !ok || flags&syscall.O_ACCMODE == syscall.O_RDONLY || len(l.files) == maxLogFiles {
		return
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // not blocked by what is no file by now
	if err != nil {
		return
	}
	if info, err = file.Stat(); err != nil || !isOwnFile(info) {
		_ = file.Close()
		return
	}
	f, known := &logFile{file: file, info: info, born: bornAt(file), stream: stream, held: true}, false
	appended := flags&syscall.O_APPEND != 0
	if appended {
		f.offset, known = l.run.logEnds.of(f)
	}
	if !appended || !known && !f.born.Before(l.run.background.spawned.Add(-fileClockLag)) {
		f.offset = max(0, info.Size()-maxLogBacklog)
		f.hole = f.offset > 0
	}
	if f.offset > 0 && !known {
		name, _ := os.Readlink(path)
		l.deliver(f, fmt.Appendf(nil, "… %s is read from byte %d on\n", name, f.offset))
	}
	l.files = append(l.files, f)
}

// isOwnFile reports whether info is that of a regular file of this user.
func isOwnFile(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().IsRegular() && int(stat.Uid) == os.Geteuid()
}

// openFlags returns the flags with which a process has opened a descriptor.
func openFlags(pid, fd int) (flags int, ok bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "flags:"); found {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 8, 64)
			return int(n), err == nil
		}
	}
	return 0, false
}

// capture captures the lines that were written to f since the last call, and reports
// whether there were any. A file that has become shorter is read from its beginning, or
// from where its data begin: a process that does not append leaves a hole.
func (l *logFiles) capture(f *logFile) bool {
	const seekData = 3
	info, err := f.file.Stat()
	if err != nil {
		return false
	}
	if info.Size() < f.offset {
		l.flush(f)
		f.offset, f.hole = 0, true
	}
	if f.hole && info.Size() > f.offset {
		if data, err := f.file.Seek(f.offset, seekData); err == nil {
			f.offset = data
		}
	}
	began := f.offset
	buf := make([]byte, readSize)
	for total := 0; total < maxLogRead && f.offset < info.Size(); {
		n, err := f.file.ReadAt(buf, f.offset)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			break
		}
		f.offset += int64(n)
		total += n
		fresh := buf[:n]
		if f.hole { // the block in which the data begin starts with NULs
			fresh = bytes.TrimLeft(fresh, "\x00")
			f.hole = len(fresh) == 0
		}
		f.rest, f.at = append(f.rest, fresh...), time.Now()
		if end := bytes.LastIndexByte(f.rest, '\n') + 1; end > 0 {
			l.deliver(f, f.rest[:end])
			f.rest = append(f.rest[:0], f.rest[end:]...)
		}
		if len(f.rest) > maxLogLine {
			l.deliver(f, f.rest)
			f.rest = f.rest[:0]
		}
	}
	if len(f.rest) > 0 && time.Since(f.at) >= flushDelay {
		l.flush(f)
	}
	return f.offset > began
}

// flush captures an unfinished line.
func (l *logFiles) flush(f *logFile) {
	if len(f.rest) > 0 {
		l.deliver(f, f.rest)
		l.run.journal.Capture(l.run.id, f.stream, time.Now(), nil)
		f.rest = f.rest[:0]
	}
}

// end captures the rest of f, at most maxLogTail, and closes it.
func (l *logFiles) end(f *logFile) {
	for n := 0; n < maxLogTail && l.capture(f); n += maxLogRead {
	}
	l.flush(f)
	if info, err := f.file.Stat(); err == nil && info.Size() > f.offset {
		l.deliver(f, fmt.Appendf(nil, "… %d bytes of the log are not read\n", info.Size()-f.offset))
		f.offset = info.Size() // they are not the next run's
	}
	l.run.logEnds.add(f)
	_ = f.file.Close()
}

// deliver passes p to the journal.
func (l *logFiles) deliver(f *logFile, p []byte) {
	now := time.Now()
	l.run.printed.Store(now.UnixNano())
	l.run.journal.Capture(l.run.id, f.stream, now, p)
}
