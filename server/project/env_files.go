package project

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"syscall"

	"github.com/joho/godotenv"
)

// maxEnvFile is the largest dotenv file that is read, in bytes.
const maxEnvFile = 1 << 20

// readEnvFiles returns the variables in dotenv files; later files take precedence.
func readEnvFiles(files []string, dir string) (map[string]string, error) {
	env := make(map[string]string)
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		content, err := readEnvFile(file)
		if err != nil {
			return nil, fmt.Errorf("argument env_files: %w", err)
		}
		values, err := godotenv.UnmarshalBytes(content)
		if err != nil { // err quotes the file, which may hold secrets
			return nil, fmt.Errorf("argument env_files: %s is not in dotenv syntax (NAME=value lines)", file)
		}
		maps.Copy(env, values)
	}
	return env, nil
}

// readEnvFile returns the content of a regular file of at most maxEnvFile bytes. Any
// other kind of file may never be written. A file of /proc is regular, too, and may be
// endless.
func readEnvFile(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // a blocking open of a named pipe waits for a writer
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file (mode %s)", file, info.Mode())
	}
	content, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(content) > maxEnvFile {
		err = fmt.Errorf("%s is larger than %d KiB", file, maxEnvFile>>10)
	}
	return content, err
}
