package server

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"

	"pmcp/logstore/line"
)

const (
	// maxEcho is the most bytes of an argument that an error quotes.
	maxEcho = 200
	// echoBlock is the size of the blocks by which clipEchoes finds quoted values:
	// any maxEcho bytes of a value contain a whole block.
	echoBlock = maxEcho / 2
)

// clipEchoes shortens long quotes of a call's arguments in text, an error message.
// Errors come from many packages, and each quotes the value that it rejects.
// clipEchoes finds values verbatim, as %q and Visible write them, and as clean
// paths. It also finds parts of values, such as one word of a command line.
func clipEchoes(text string, arguments json.RawMessage) string {
	if len(text) <= maxEcho || len(arguments) <= maxEcho {
		return text
	}
	blocks := make(map[string]string) // maps each block to the rest of its value, which begins with the block
	for decoder := json.NewDecoder(bytes.NewReader(arguments)); ; {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if value, ok := token.(string); ok { // keys too
			addBlocks(blocks, value)
		}
	}
	if len(blocks) == 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		end := min(i+echoBlock, len(text))
		n := commonPrefix(text[i:], blocks[text[i:end]])
		if n <= maxEcho {
			b.WriteByte(text[i])
			i++
			continue
		}
		b.WriteString(cut(text[i:i+n], maxEcho))
		i += n
	}
	return b.String()
}

// addBlocks adds the blocks of a string, if it is long, to blocks, in each form in
// which errors quote it.
func addBlocks(blocks map[string]string, v string) {
	if len(v) <= maxEcho {
		return
	}
	for _, form := range []string{v, strings.Trim(strconv.Quote(v), `"`), filepath.Clean(v), line.Visible(v), line.Visible(filepath.Clean(v))} {
		for i := 0; i+echoBlock <= len(form); i += echoBlock {
			if block := form[i : i+echoBlock]; blocks[block] == "" {
				blocks[block] = form[i:]
			}
		}
	}
}

// commonPrefix returns the length of the common prefix of a and b.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
