package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// An artefact is an archive of a release.
type artefact struct {
	name  string // of the archive; an .mcpb is a zip, all others are gzipped tars
	under string // the directory that everything in the archive is in; "" for none
	texts string // the directory in files whose texts it has; "" for none
	cpu   string // npm's name of the architecture; "" if it fits all
	more  []file
}

// A file is one of an archive.
type file struct {
	name    string
	content []byte
	mode    fs.FileMode
}

// artefacts returns the archives of a release.
func (r *releaser) artefacts(built []platform) ([]artefact, error) {
	documents, err := r.documents()
	if err != nil {
		return nil, err
	}
	completions, err := r.completions()
	if err != nil {
		return nil, err
	}
	all := []artefact{
		{name: "pmcp-" + r.version + ".tgz", under: "package", texts: "npm", more: documents},
		{name: "pmcp-" + r.version + "-claude-plugin.tar.gz", under: "pmcp", texts: "plugin", more: documents},
	}
	for _, p := range built {
		binary, err := os.ReadFile(r.binary(p.arch))
		if err != nil {
			return nil, err
		}
		program := file{"bin/pmcp", binary, 0o755}
		name := "pmcp-" + r.version + "-linux-" + p.arch
		all = append(all,
			artefact{name: name + ".tar.gz", under: name, more: slices.Concat([]file{program}, completions, within("share/doc/pmcp", documents))},
			artefact{name: "pmcp-linux-" + p.cpu + "-" + r.version + ".tgz", under: "package", texts: "npm-linux", cpu: p.cpu, more: slices.Concat([]file{program}, documents)},
			artefact{name: name + ".mcpb", texts: "bundle", more: slices.Concat([]file{program}, documents)},
		)
	}
	return all, nil
}

// documents returns README.md and, if there is one, LICENSE.
func (r *releaser) documents() (all []file, err error) {
	for _, name := range []string{"README.md", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(r.source(), name))
		if name == "LICENSE" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, file{name, text, 0o644})
	}
	return all, nil
}

// completions returns the completion scripts at the places where shells look for them.
func (r *releaser) completions() (all []file, err error) {
	for _, c := range [][2]string{
		{"bash", "share/bash-completion/completions/pmcp"},
		{"fish", "share/fish/vendor_completions.d/pmcp.fish"},
		{"zsh", "share/zsh/site-functions/_pmcp"},
	} {
		script, err := exec.Command(r.binary(runtime.GOARCH), "completion", c[0]).Output()
		if err != nil {
			return nil, fmt.Errorf("completion %s: %w", c[0], err)
		}
		all = append(all, file{c[1], script, 0o644})
	}
	return all, nil
}

// texts returns the files of an embedded directory, or of one file, with the words of this
// release. Those in a directory bin are programs.
func (r *releaser) texts(dir, cpu string) (all []file, err error) {
	words := strings.NewReplacer("VERSION", r.version, "LICENSE", r.license, "CPU", cpu)
	root := path.Join("files", dir)
	err = fs.WalkDir(files, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		mode := fs.FileMode(0o644)
		if path.Base(path.Dir(name)) == "bin" {
			mode = 0o755
		}
		all = append(all, file{strings.TrimPrefix(strings.TrimPrefix(name, root), "/"), []byte(words.Replace(string(text))), mode})
		return err
	})
	return all, err
}

// within returns files moved to a directory.
func within(dir string, all []file) (moved []file) {
	for _, f := range all {
		f.name = path.Join(dir, f.name)
		moved = append(moved, f)
	}
	return moved
}

// write makes an archive. Its bytes depend only on its files and the time of the commit.
func (r *releaser) write(a artefact) error {
	all := a.more
	if a.texts != "" {
		texts, err := r.texts(a.texts, a.cpu)
		if err != nil {
			return err
		}
		all = slices.Concat(texts, all)
	}
	all = within(a.under, all)
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	format := r.tarball
	if path.Ext(a.name) == ".mcpb" {
		format = r.zip
	}
	var b bytes.Buffer
	if err := format(&b, all); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, a.name), b.Bytes(), 0o644)
}

func (r *releaser) tarball(w io.Writer, all []file) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range all {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: r.at, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func (r *releaser) zip(w io.Writer, all []file) error {
	z := zip.NewWriter(w)
	for _, f := range all {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.at}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return z.Close()
}
