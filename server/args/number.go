package args

import (
	"encoding/json"
	"strconv"
)

// An IntOrText is an integer argument for which a text may stand: it is the text, or the
// integer in decimal. The schema has it as an integer. "" is "not given".
type IntOrText string

// Int returns the integer, and reports whether it is one.
func (v IntOrText) Int() (int, bool) {
	i, err := strconv.Atoi(string(v))
	return i, err == nil
}

// MarshalJSON writes an integer as a number and a text as a string.
func (v IntOrText) MarshalJSON() ([]byte, error) {
	if i, ok := v.Int(); ok {
		return json.Marshal(i)
	}
	return json.Marshal(string(v))
}

// UnmarshalJSON reads a number in any notation that JSON has for an integer, or a string.
func (v *IntOrText) UnmarshalJSON(raw []byte) error {
	if i, ok := Int(raw); ok {
		*v = IntOrText(strconv.FormatInt(i, 10))
		return nil
	}
	return json.Unmarshal(raw, (*string)(v))
}
