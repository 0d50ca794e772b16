// Package mask takes secrets out of text: values that it was told of (those of environment
// variables and options whose names look secret) and strings that by their form are tokens, keys or
// passwords in URLs. Each is replaced by a short word that says what stood there, "[masked
// GITHUB_TOKEN]"; nothing else of the text changes, and never the number of its lines.
//
// It is pure but for a look whether a value names a file: no clock, no goroutines. A text without
// secrets costs a scan and no allocation.
//
// It is best effort. A secret that is encoded (base64, URL, gzip), that is shorter than 8 bytes, or
// that a program prints with other bytes in between is not found.
package mask

import (
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// minSecret is the shortest value that is looked for, in bytes.
	minSecret = 8
	// maxSecret is the longest that is looked for as a whole; a longer one is looked for in pieces.
	maxSecret = 4 << 10
	// maxSecrets bounds the values that a Masker knows; those that were learned longest ago are
	// forgotten. Up to maxInherited of them are of the environment that every child inherits, and
	// kept.
	maxSecrets   = 2000
	maxInherited = 1000
	// maxLabel bounds the name in a mask.
	maxLabel = 40
)

// Masker knows the secrets of a session. A nil *Masker masks nothing. Its methods may be called
// from several goroutines; what is learned counts for calls that begin later.
type Masker struct {
	mu        sync.Mutex // held by who learns
	known     map[string]string
	inherited []string // keys of known that are kept
	order     []string // the others, the one learned longest ago first
	spared    []string // texts that are no secrets
	set       atomic.Pointer[set]
}

// New gives a Masker that knows the forms of tokens and no values.
func New() *Masker {
	m := &Masker{known: make(map[string]string)}
	m.set.Store(newSet(nil))
	return m
}

// learned is a value to look for, and what its mask says.
type learned struct{ value, label string }

// learn adds values; those known are as good as new.
func (m *Masker) learn(all []learned, inherited bool) {
	if m == nil || len(all) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh, again := false, make(map[string]bool)
	for _, l := range all {
		if _, known := m.known[l.value]; known {
			again[l.value] = true
			continue
		}
		if m.isSpared(l.value) {
			continue
		}
		fresh = true
		m.known[l.value] = label(l.label)
		if inherited && len(m.inherited) < maxInherited {
			m.inherited = append(m.inherited, l.value)
		} else {
			m.order = append(m.order, l.value)
		}
	}
	if len(again) > 0 {
		last := slices.DeleteFunc(slices.Clone(m.order), func(value string) bool { return !again[value] })
		m.order = append(slices.DeleteFunc(m.order, func(value string) bool { return again[value] }), last...)
	}
	if !fresh {
		return
	}
	for len(m.known) > maxSecrets {
		delete(m.known, m.order[0])
		m.order = m.order[1:]
	}
	m.renew()
}

// label is name as it stands in a mask: letters, digits, _ . and -, at most maxLabel of them.
func label(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && (isWord[byte(r)] || r == '.') {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), maxLabel)]
}

// Text is s with its secrets masked. s may have several lines.
func (m *Masker) Text(s string) string {
	if m == nil || len(m.set.Load().find([]byte(s), nil)) == 0 {
		return s
	}
	lines := Lines{m: m}
	var b strings.Builder
	for line := range strings.Lines(s) {
		text, ended := strings.CutSuffix(line, "\n")
		b.Write(lines.mask([]byte(text)))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Texts is all with the secrets of each masked; all itself is not changed.
func (m *Masker) Texts(all []string) []string {
	if m == nil {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i] = m.Text(all[i])
	}
	return all
}

// Head is the beginning of text, masked, at most n bytes of it. A secret that the cut goes through
// is not shown in part. whole says that text is all there is; else it goes on.
func (m *Masker) Head(text []byte, whole bool, n int) []byte {
	if m == nil {
		return text[:min(len(text), n)]
	}
	if len(text) > n+maxSecret {
		text, whole = text[:n+maxSecret], false
	}
	mask := m.Clipped
	if whole {
		mask = m.Text
	}
	masked := mask(string(text))
	return []byte(masked[:min(len(masked), n)])
}

// Clipped is Text for the beginning of something longer: what may be the first part of a secret is left out.
func (m *Masker) Clipped(s string) string {
	if m == nil {
		return s
	}
	lines := Lines{m: m}
	return m.Text(s[:lines.Whole([]byte(s), true)])
}

// Part is Text, or Clipped for what goes on where it ends.
func (m *Masker) Part(s string, clipped bool) string {
	if clipped {
		return m.Clipped(s)
	}
	return m.Text(s)
}

// Writer is w with the secrets of each Write masked.
func (m *Masker) Writer(w io.Writer) io.Writer {
	if m == nil {
		return w
	}
	return writer{m, w}
}

type writer struct {
	m *Masker
	w io.Writer
}

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, w.m.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
