package mask

import (
	"bytes"
	"encoding/json"
)

// JSON returns raw, a JSON text, with the secrets in its strings masked. Keys, numbers and
// everything else are unchanged. JSON does not modify raw.
func (m *Masker) JSON(raw []byte) []byte {
	if m == nil {
		return raw
	}
	var out []byte
	done := 0 // raw[:done] has been copied to out
	for end := 0; ; {
		next := bytes.IndexByte(raw[end:], '"')
		if next < 0 {
			break
		}
		from := end + next
		end = stringEnd(raw, from)
		if masked, changed := m.jsonString(raw[from:end]); changed && !isKey(raw, end) {
			out = append(append(out, raw[done:from]...), masked...)
			done = end
		}
	}
	if done == 0 {
		return raw
	}
	return append(out, raw[done:]...)
}

// stringEnd returns the end of the string whose opening quote is at from.
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

// isKey reports whether the string that ends at end is a key.
func isKey(raw []byte, end int) bool {
	rest := bytes.TrimLeft(raw[end:min(len(raw), end+8)], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// jsonString returns a quoted JSON string with its secrets masked.
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
	return encodeJSON(clean, false), true
}

func encodeJSON(text string, html bool) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	_ = e.Encode(text) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
