package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"pmcp/process/proctab"
)

// compactAt is the number of identities after which the list is rewritten without the
// processes that have ended: a build may start a hundred thousand processes in an
// afternoon. maxProcsFile bounds how much of a list is read, because another program may
// have written it.
const (
	compactAt    = 4096
	maxProcsFile = 8 << 20
)

// A procsFile is the list of a session's processes, as its server writes it. It is not
// safe for concurrent use.
type procsFile struct {
	path, temp string
	boot       string
	file       *os.File
	listed     map[proctab.ID]bool
	limit      int // the number of identities beyond which add compacts the list
}

func createProcs(dir, id, boot string) (*procsFile, error) {
	p := &procsFile{
		path:   file(dir, id, procsSuffix),
		temp:   unfinished(dir, id, procsSuffix),
		boot:   boot,
		listed: map[proctab.ID]bool{},
		limit:  compactAt,
	}
	return p, p.rewrite()
}

// add appends the identities that are not yet listed, in one write.
func (p *procsFile) add(ids []proctab.ID) error {
	var lines bytes.Buffer
	for _, id := range ids {
		if !p.listed[id] {
			p.listed[id] = true
			fmt.Fprintln(&lines, id)
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	if len(p.listed) > p.limit {
		return p.compact()
	}
	if _, err := p.file.Write(lines.Bytes()); err != nil {
		p.limit = 0 // the next add rewrites the whole list, which may end in half a line
		return err
	}
	return nil
}

// compact rewrites the list without what has ended.
func (p *procsFile) compact() error {
	for id := range p.listed {
		if now, err := proctab.Read(id.PID); errors.Is(err, proctab.ErrGone) || err == nil && now.ID != id {
			delete(p.listed, id)
		}
	}
	if err := p.rewrite(); err != nil {
		p.limit = 0 // as after a failed write: file and listed differ
		return err
	}
	p.limit = max(compactAt, 2*len(p.listed))
	return nil
}

// rewrite replaces the file with one that holds exactly what is listed.
func (p *procsFile) rewrite() error {
	var content bytes.Buffer
	fmt.Fprintf(&content, "boot %s\n", p.boot)
	for _, id := range slices.SortedFunc(maps.Keys(p.listed), byStart) {
		fmt.Fprintln(&content, id)
	}
	f, err := replaceFile(p.path, p.temp, content.Bytes())
	if err != nil {
		return err
	}
	if p.file != nil {
		_ = p.file.Close()
	}
	p.file = f
	return nil
}

func byStart(a, b proctab.ID) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
}

func (p *procsFile) close() error { return p.file.Close() }

// replaceFile writes content to temp, renames it to path and returns it open for
// appending. It does not sync: after a power failure the boot is a different one, and then
// only the file's name counts.
func replaceFile(path, temp string, content []byte) (*os.File, error) {
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(content)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(temp))
	}
	return f, nil
}

// readProcs returns the processes that a session listed on this boot, oldest first. It
// skips lines that it cannot parse, such as a last one cut short by the server's death.
// Without a line for this boot it returns none.
func readProcs(dir, id, boot string) ([]proctab.ID, error) {
	content, err := readOwn(file(dir, id, procsSuffix), maxProcsFile)
	if err != nil {
		return nil, err
	}
	first, rest, whole := strings.Cut(string(content), "\n")
	if !whole || first != "boot "+boot {
		return nil, nil
	}
	var ids []proctab.ID
	for line := range strings.Lines(rest) {
		entry, complete := strings.CutSuffix(line, "\n")
		if id, err := proctab.ParseID(entry); err == nil && complete {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, byStart)
	return slices.Compact(ids), nil
}
