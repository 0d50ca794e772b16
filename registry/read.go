package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxRecord bounds how much of a record is read. A real one has about 1 KiB.
const maxRecord = 64 << 10

var (
	// errForeign is returned for a file of another user and for anything but a plain file.
	errForeign = errors.New("not ours")
	// errNewer is returned for a record that a newer pmcp wrote.
	errNewer = errors.New("written by a newer pmcp")
)

// readOwn returns the content of a file of this user, which may have at most limit bytes.
// For a symbolic link, another user's file and anything but a plain file it returns
// errForeign. It does not block on such a file.
func readOwn(path string, limit int64) ([]byte, error) {
	f, err := openOwn(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return content, nil
}

// checkPlain returns errForeign unless fd is a plain file of this user.
func checkPlain(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%w: not a plain file", errForeign)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: belongs to user %d", errForeign, st.Uid)
	}
	return nil
}

func readRecord(dir, id string) (Record, error) {
	content, err := readOwn(file(dir, id, recordSuffix), maxRecord)
	if err != nil {
		return Record{}, err
	}
	var version struct {
		Format int `json:"v"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return Record{}, fmt.Errorf("corrupt record: %w", err)
	}
	if version.Format > Format {
		return Record{}, fmt.Errorf("%w: format %d, this one reads %d", errNewer, version.Format, Format)
	}
	var r Record
	if err := json.Unmarshal(content, &r); err != nil {
		return Record{}, fmt.Errorf("corrupt record: %w", err)
	}
	if r.Format != Format || r.ID != id {
		return Record{}, fmt.Errorf("corrupt record: format %d, id %q", r.Format, r.ID)
	}
	return r, nil
}
