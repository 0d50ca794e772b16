package offered

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxFile is the largest file that is read, in bytes.
const maxFile = 1 << 20

// A reader reads the files of one directory.
type reader struct {
	dir, root string
	top       manifest // of package.json
	programs  []Program
	notes     []string
}

// note records that a file, or a part of it, could not be used.
func (r *reader) note(file, format string, args ...any) {
	r.notes = append(r.notes, file+": "+fmt.Sprintf(format, args...))
}

// read returns the content of a file of the directory. ok is false if it does not exist, or
// could not be read, which becomes a note.
func (r *reader) read(file string) (content []byte, ok bool) {
	content, err := ReadFile(filepath.Join(r.dir, file))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, false
	}
	if err != nil {
		r.note(file, "%s", reason(err))
		return nil, false
	}
	return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), true
}

// ReadFile returns the content of a regular file of at most 1 MiB. Any other kind of file may never be written; a
// file of /proc is regular, too, and may be endless. Errors are *fs.PathError.
func ReadFile(file string) ([]byte, error) {
	refuse := func(why string) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: file, Err: errors.New(why)}
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // a blocking open of a named pipe waits for a writer
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return refuse(fmt.Sprintf("it is not a regular file (mode %s)", info.Mode()))
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		return refuse("it is larger than 1 MiB")
	}
	return content, err
}

// reason returns what is wrong without the path, which the note has.
func reason(err error) string {
	var at *fs.PathError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &at):
		return at.Err.Error()
	case errors.As(err, &kind):
		return strings.TrimSpace(kind.Field + " cannot be of type " + kind.Value)
	}
	return err.Error()
}

// decodeJSON decodes content into value. If it fails, that becomes a note.
func (r *reader) decodeJSON(file string, content []byte, value any) bool {
	err := json.Unmarshal(content, value)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		r.note(file, "line %d: not JSON: %s", 1+bytes.Count(content[:min(int(syntax.Offset), len(content))], []byte("\n")), syntax)
	case err != nil:
		r.note(file, "%s", reason(err))
	}
	return err == nil
}

// exists reports whether a file exists in the directory.
func exists(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

// relative returns path relative to the directory if it is below it.
func (r *reader) relative(path string) string {
	if path == r.dir {
		return ""
	}
	return strings.TrimPrefix(path, strings.TrimSuffix(r.dir, "/")+"/")
}
