package mask

import (
	"bytes"
	"encoding/json"
)

// JSON is raw, a JSON text, with the secrets in its strings masked; keys, numbers and everything
// else stay. raw itself is not changed.
func (m *Masker) JSON(raw []byte) []byte {
	if m == nil {
		return raw
	}
	var out []byte
	done := 0 // up to here raw is in out
	for i := 0; i < len(raw); {
		from := bytes.IndexByte(raw[i:], '"')
		if from < 0 {
			break
		}
		from += i
		end := stringEnd(raw, from)
		i = end
		if isKey(raw, end) {
			continue
		}
		if masked, changed := m.jsonString(raw[from:end]); changed {
			out = append(append(out, raw[done:from]...), masked...)
			done = end
		}
	}
	if done == 0 {
		return raw
	}
	return append(out, raw[done:]...)
}

// stringEnd is the end of the string whose opening quote is at from.
func stringEnd(raw []byte, from int) int {
	for i := from + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// isKey tells whether the string that ends at end is a key.
func isKey(raw []byte, end int) bool {
	rest := bytes.TrimLeft(raw[end:min(len(raw), end+8)], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// jsonString masks one string, quotes included.
func (m *Masker) jsonString(quoted []byte) (masked []byte, changed bool) {
	if bytes.IndexByte(quoted, '\\') < 0 && len(m.set.Load().find(quoted, nil)) == 0 {
		return quoted, false
	}
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return quoted, false
	}
	clean := m.Text(text)
	if clean == text {
		return quoted, false
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(clean) != nil {
		return quoted, false
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), true
}
