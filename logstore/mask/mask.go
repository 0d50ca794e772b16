// Package mask removes secrets from text: values that it has learned (from environment variables
// and options whose names look secret) and strings that have the form of a token, a private key or
// a password in a URL. Each secret is replaced by a mask with its name, such as "[masked
// GITHUB_TOKEN]". The rest of the text does not change, nor does the number of its lines.
//
// The package uses no clock and no goroutines, and the only thing it asks of the system is whether
// a value names a file. A text without secrets costs one scan and no allocation.
//
// Masking is best effort. The package does not find a secret that is encoded (base64, URL, gzip),
// that is shorter than 8 bytes, or that a program prints with other bytes in between.
package mask

import (
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// minSecret is the shortest value that is masked, in bytes.
	minSecret = 8
	// maxSecret is the longest value that is masked as a whole; a longer one is masked in pieces.
	maxSecret = 4 << 10
	// maxSecrets bounds the values that a Masker knows; the least recently learned are evicted. Up
	// to maxInherited values come from the environment that every child inherits and are never
	// evicted.
	maxSecrets   = 2000
	maxInherited = 1000
	// maxExempt bounds the number of texts that Exempt keeps; the oldest texts are evicted.
	maxExempt = 4000
	// maxLabel bounds the name in a mask.
	maxLabel = 40
)

// A Masker masks the secrets of a session. A nil *Masker masks nothing. Its methods may be called
// concurrently; a learned value is masked in calls that start after it was learned.
type Masker struct {
	mu        sync.Mutex       // guards the fields below, except set
	known     map[string]known // the learned values
	learned   int              // how many times a value was learned
	inherited int              // how many values are never evicted
	exempt    []string         // texts that are not secret, see Exempt
	set       atomic.Pointer[set]
}

// known describes a learned value.
type known struct {
	label   string
	learned int // Masker.learned when the value was last learned; negative if the value is never evicted
}

// New returns a Masker that knows the forms of tokens but no values.
func New() *Masker {
	m := &Masker{known: make(map[string]known)}
	m.set.Store(newSet(nil))
	return m
}

// secret is a value to mask and the name that its mask shows.
type secret struct{ value, label string }

// learn adds values. A value that is already known becomes the most recently learned.
func (m *Masker) learn(all []secret, inherited bool) {
	if m == nil || len(all) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh, again := false, []string(nil)
	for _, s := range all {
		if _, ok := m.known[s.value]; ok {
			again = append(again, s.value)
			continue
		}
		if isPartOf(m.exempt, s.value) {
			continue
		}
		fresh = true
		m.learned++
		k := known{label: label(s.label), learned: m.learned}
		if inherited && m.inherited < maxInherited {
			m.inherited++
			k.learned += math.MinInt / 2
		}
		m.known[s.value] = k
	}
	slices.SortFunc(again, m.byAgeLocked)
	for _, value := range slices.Compact(again) {
		if k := m.known[value]; k.learned >= 0 {
			m.learned++
			m.known[value] = known{label: k.label, learned: m.learned}
		}
	}
	if fresh {
		m.rebuildLocked()
	}
}

// byAgeLocked compares two known values by when they were last learned. Values that are never
// evicted come first.
func (m *Masker) byAgeLocked(a, b string) int { return m.known[a].learned - m.known[b].learned }

// Exempt adds texts that are not secret: names of processes and groups, directories. From then on a
// value that equals or is part of an exempt text is not masked. A database whose password is the
// name of its process is a common first setup; masking the password would remove the name of the
// process from the answers.
func (m *Masker) Exempt(texts ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		return len(text) < minSecret || slices.Contains(m.exempt, text)
	})
	m.exempt = append(m.exempt, fresh...)
	m.exempt = m.exempt[max(0, len(m.exempt)-maxExempt):]
	before := len(m.known)
	maps.DeleteFunc(m.known, func(value string, k known) bool {
		exempt := isPartOf(fresh, value)
		if exempt && k.learned < 0 {
			m.inherited--
		}
		return exempt
	})
	if len(m.known) < before {
		m.rebuildLocked()
	}
}

func isPartOf(texts []string, value string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, value) })
}

// rebuildLocked evicts what is beyond maxSecrets, and replaces the set of needles with a set of the
// known values.
func (m *Masker) rebuildLocked() {
	values := slices.SortedFunc(maps.Keys(m.known), m.byAgeLocked)
	end := m.inherited + max(0, len(values)-maxSecrets)
	for _, value := range values[m.inherited:end] {
		delete(m.known, value)
	}
	values = slices.Delete(values, m.inherited, end)
	needles := make([]needle, 0, len(values))
	for _, value := range values {
		needles = append(needles, needle{text: value, label: m.known[value].label})
	}
	m.set.Store(newSet(needles))
}

// label returns name as a mask shows it: at most maxLabel bytes, with every character except
// letters, digits, _ . and - replaced by _.
func label(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && (isWord[byte(r)] || r == '.') {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), maxLabel)]
}

// Text returns s with its secrets masked. s may have several lines.
func (m *Masker) Text(s string) string {
	if m == nil || len(m.set.Load().find([]byte(s), nil)) == 0 {
		return s
	}
	lines := Lines{m: m}
	var b strings.Builder
	for line := range strings.Lines(s) {
		text, ended := strings.CutSuffix(line, "\n")
		b.Write(lines.Line([]byte(text)))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Texts returns a copy of all with the secrets of each masked.
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

// Head returns at most the first n bytes of text, with its secrets masked. If a secret extends
// beyond the cut, no part of it is shown. whole means that text is complete; otherwise more text
// follows.
func (m *Masker) Head(text []byte, whole bool, n int) []byte {
	if m == nil {
		return text[:min(len(text), n)]
	}
	if len(text) > n+maxSecret {
		text, whole = text[:n+maxSecret], false
	}
	masked := m.Part(string(text), !whole)
	return []byte(masked[:min(len(masked), n)])
}

// Clipped is like Text, for the first part of a longer text: it omits a suffix of s that may be the
// start of a secret.
func (m *Masker) Clipped(s string) string { return m.Part(s, true) }

// Part is Clipped if s is clipped, else Text.
func (m *Masker) Part(s string, clipped bool) string {
	if clipped {
		lines := Lines{m: m}
		s = s[:lines.SafePrefix([]byte(s), true)]
	}
	return m.Text(s)
}

// Writer returns a writer that masks the secrets in the data of each Write and writes the result to
// w.
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
