package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pmcp/logstore"
	"pmcp/logstore/fault"
)

const (
	maxLibraryName = 60  // bytes of the name of a library
	maxFoldedLines = 500 // lines of library frames for which other lines are read
)

// addLibraryFrames adds one line for the frames of libraries that begin at Lines[i], if it
// replaces several, and returns the index after them: in the answer of an action only the
// user's frames are shown.
func (f *formatter) addLibraryFrames(i int) (next int) {
	if f.actionRun == 0 {
		return i
	}
	mark, next := libraryFrames(f.page, i)
	if mark != "" {
		shown := f.newLine(i, next)
		shown.text, f.last = mark, f.page.Lines[next-1].At
		f.shown = append(f.shown, shown)
	}
	return next
}

// libraryFrames returns the line that stands for the frames of libraries that begin at
// p.Lines[i], and the index after them. If that is less than two lines, it returns "" and i.
func libraryFrames(p *logstore.Page, i int) (mark string, next int) {
	mark, lines := frameMark(func(n int) (string, bool) {
		k := i + n
		if k >= len(p.Lines) || p.Lines[k].Continuation || k+1 < len(p.Lines) && continues(&p.Lines[k], &p.Lines[k+1]) || n > 0 && !followsOn(p, k) {
			return "", false
		}
		return p.Lines[k].Text, true
	})
	return mark, i + lines
}

// frameMark returns the line that stands for the frames of libraries at the start of a text, as
// fault.LibraryFrames takes it, and how many lines these are. It returns "" and 0 if they are
// fewer than two.
func frameMark(line func(i int) (text string, ok bool)) (mark string, lines int) {
	lines, frames, libraries := fault.LibraryFrames(line)
	if lines < 2 {
		return "", 0
	}
	if len(libraries) == 0 {
		return fmt.Sprintf("… %s …", countNoun(int64(frames), "library frame", "library frames")), lines
	}
	for i, name := range libraries {
		libraries[i] = quoteUnlessPlain(cut(name, maxLibraryName))
	}
	return fmt.Sprintf("… %s in %s …", countNoun(int64(frames), "frame", "frames"), strings.Join(libraries, ", ")), lines
}

// foldStack returns a stack with one line for each run of frames of libraries.
func foldStack(stack []string) (folded []string) {
	for i := 0; i < len(stack); {
		mark, lines := frameMark(func(n int) (string, bool) {
			if i+n < len(stack) {
				return stack[i+n], true
			}
			return "", false
		})
		folded = append(folded, cmp.Or(mark, stack[i]))
		i += max(lines, 1)
	}
	return folded
}

// followsOn reports whether p.Lines[i] directly follows the line before it, on the same
// stream.
func followsOn(p *logstore.Page, i int) bool {
	before, l := &p.Lines[i-1], &p.Lines[i]
	return sameLine(before, l) && !slices.ContainsFunc(p.Gaps, func(g logstore.Gap) bool {
		return gapPrecedes(g, l) && !gapPrecedes(g, before)
	})
}

// lastShown returns how many of the last lines of p the answer of an action shows in n
// lines, where one line stands for the frames of libraries, and reports whether it has such
// frames.
func lastShown(p *logstore.Page, n int) (lines int, folds bool) {
	var starts []int // of the lines that are shown
	for i := 0; i < len(p.Lines); {
		starts = append(starts, i)
		if _, next := libraryFrames(p, i); next > i {
			i, folds = next, true
		} else {
			i++
		}
	}
	if len(starts) <= n {
		return len(p.Lines), folds
	}
	return len(p.Lines) - starts[len(starts)-n], folds
}
