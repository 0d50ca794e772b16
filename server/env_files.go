package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/joho/godotenv"
	"golang.org/x/sys/unix"
)

// maxEnvFile bounds what is read of a dotenv file.
const maxEnvFile = 1 << 20

// pipePatience is how long the content of a named pipe is waited for.
const pipePatience = 5 * time.Second

// readEnvFiles reads dotenv files; later ones win.
func readEnvFiles(ctx context.Context, files []string, dir string) (map[string]string, error) {
	env := make(map[string]string)
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		content, err := unlessEnded(ctx, func() ([]byte, error) { return readEnvFile(ctx, file, pipePatience) })
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

// readEnvFile gives the content of a regular file, or of a named pipe, as which
// password managers show one. Anything else may have no end.
func readEnvFile(ctx context.Context, file string, patience time.Duration) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case info.Mode()&os.ModeNamedPipe != 0:
		return readPipe(ctx, file, patience)
	}
	if err := checkEnvFile(file, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // should another kind take its place just now
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readBounded(f)
}

// readPipe is readEnvFile of a named pipe.
func readPipe(ctx context.Context, file string, patience time.Duration) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // else it would wait for a writer, whatever becomes of ctx
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	var content []byte
	if err = awaitWriter(f); err == nil {
		content, err = readBounded(f)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return nil, fmt.Errorf("cannot wait for the named pipe %s: %w", file, context.Cause(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("nobody has written all of the named pipe %s within %v", file, patience)
	}
	return content, err
}

// awaitWriter waits until a named pipe holds something, or has had a writer:
// before that it reads as empty.
func awaitWriter(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) (done bool) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor is small
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// readBounded reads a file of at most maxEnvFile.
func readBounded(f *os.File) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(content) > maxEnvFile {
		err = tooLarge(f.Name())
	}
	return content, err
}

func checkEnvFile(file string, info os.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file and no named pipe (mode %s)", file, info.Mode())
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
