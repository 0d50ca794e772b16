package db

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// TestCheckFileSystemNamesNetworks checks the verdict on a database by the file system of its
// directory or, where that does not exist, of the nearest one above it.
func TestCheckFileSystemNamesNetworks(t *testing.T) {
	for number, want := range map[uint32]string{
		0x6969: "(NFS)", 0xfe534d42: "(SMB2)", 0x01021997: "(9p)", 0xef53: "", 0x01021994: "", 0x65735546: "",
	} {
		var asked []string
		err := checkFileSystem("/home/me/.local/state/pmcp/pmcp.db", func(path string) (uint32, error) {
			asked = append(asked, path)
			if path != "/home/me" {
				return 0, &fs.PathError{Op: "statfs", Path: path, Err: fs.ErrNotExist}
			}
			return number, nil
		})
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "PM_DATABASE_PATH")) || len(asked) != 4 {
			t.Errorf("%#x: got %v after %q, want %q", number, err, asked, want)
		}
	}
	if err := checkFileSystem("/x", func(string) (uint32, error) { return 0x6969, errors.New("no") }); err != nil {
		t.Errorf("got %v, want no verdict", err)
	}
}
