package server

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"syscall"

	"github.com/joho/godotenv"
)

// maxEnvFile bounds what is read of a dotenv file.
const maxEnvFile = 1 << 20

// readEnvFiles reads dotenv files; later ones win.
func readEnvFiles(ctx context.Context, files []string, dir string) (map[string]string, error) {
	env := make(map[string]string)
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		content, err := unlessEnded(ctx, func() ([]byte, error) { return readEnvFile(file) })
		if err != nil {
			return nil, fmt.Errorf("argument env_files: %w", err)
		}
		values, err := godotenv.UnmarshalBytes(content)
		if err != nil { // its text quotes the file, which may hold secrets
			return nil, fmt.Errorf("argument env_files: %s is not in dotenv syntax (NAME=value lines)", file)
		}
		maps.Copy(env, values)
	}
	return env, nil
}

// readEnvFile gives the content of a regular file. Anything else may have no
// end, or wait for somebody who writes: it is not even opened, for that could
// be what another program waits for, unless it takes the file's place just
// then; the flag has that not wait either.
func readEnvFile(file string) ([]byte, error) {
	if info, err := os.Stat(file); err != nil {
		return nil, err
	} else if err := checkEnvFile(file, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil {
		err = checkEnvFile(file, info)
	}
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(content) > maxEnvFile {
		err = tooLarge(file)
	}
	return content, err
}

func checkEnvFile(file string, info os.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (mode %s)", file, info.Mode())
	case info.Size() > maxEnvFile:
		return tooLarge(file)
	}
	return nil
}

func tooLarge(file string) error {
	return fmt.Errorf("%s is larger than %d KiB", file, maxEnvFile>>10)
}

// unlessEnded returns what read does, or ctx's cause as soon as it has ended:
// then a read that hangs, as on a mount whose server is gone, goes on alone,
// since nothing can interrupt it.
func unlessEnded(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := read()
		done <- result{content, err}
	}()
	select {
	case r := <-done:
		return r.content, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot wait for the file to be read: %w", context.Cause(ctx))
	}
}
