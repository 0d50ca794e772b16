package mask

import (
	"maps"
	"slices"
	"strings"
)

// maxSpared bounds the texts that Spare remembers; the oldest are forgotten.
const maxSpared = 4000

// Spare tells of texts that are no secrets: names of processes and groups, directories. A value
// that is one of them, or a part of one, is not masked from then on: a database whose password is
// the name of its process is everybody's first try, and masking it would take the names out of the
// answers.
func (m *Masker) Spare(texts ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		return len(text) < minSecret || slices.Contains(m.spared, text)
	})
	m.spared = append(m.spared, fresh...)
	m.spared = m.spared[max(0, len(m.spared)-maxSpared):]
	known, spared := len(m.known), func(value string) bool { return isPartOf(fresh, value) }
	maps.DeleteFunc(m.known, func(value, _ string) bool { return spared(value) })
	if len(m.known) == known {
		return
	}
	m.inherited, m.order = slices.DeleteFunc(m.inherited, spared), slices.DeleteFunc(m.order, spared)
	m.renew()
}

// isSpared tells whether a value is part of what was spared. m.mu is held.
func (m *Masker) isSpared(value string) bool { return isPartOf(m.spared, value) }

func isPartOf(texts []string, value string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, value) })
}

// renew has the values that are known now looked for. m.mu is held.
func (m *Masker) renew() {
	needles := make([]needle, 0, len(m.known))
	for _, value := range slices.Concat(m.inherited, m.order) {
		needles = append(needles, needle{text: value, label: m.known[value]})
	}
	m.set.Store(newSet(needles))
}
