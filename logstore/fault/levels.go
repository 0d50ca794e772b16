package fault

import "strings"

// levelWords lists the words with which loggers state each level, in lower case. All have at least
// 3 letters.
var levelWords = [...]string{
	levelTrace: "trace trc verbose silly",
	levelDebug: "debug dbg dbug debu",
	levelInfo:  "info inf information notice",
	levelWarn:  "warn wrn warning",
	levelError: "error err erro severe fail exception",
	levelFatal: "fatal ftl fata critical crit panic emerg emergency alert dpanic",
}

// longestLevelWord is the length of the longest of the levelWords.
const longestLevelWord = len("information")

// A levelWord is one of the levelWords.
type levelWord struct {
	text  string
	level uint8
}

// levelIndexBits sets the size of levelIndex, so that few words of prose share an entry with a
// level.
const levelIndexBits = 9

var (
	// levelIndex maps the hash of the first three letters of a word to an index of levelLists.
	levelIndex [1 << levelIndexBits]uint8
	// levelLists holds the levelWords with the same hash; list 0 is empty.
	levelLists = indexLevels()
)

func indexLevels() [][]levelWord {
	lists := make([][]levelWord, 1)
	for level, words := range levelWords {
		for _, w := range strings.Fields(words) {
			at := &levelIndex[levelHash([]byte(w))]
			if *at == 0 {
				*at = uint8(len(lists))
				lists = append(lists, nil)
			}
			lists[*at] = append(lists[*at], levelWord{w, uint8(level)})
		}
	}
	return lists
}

func levelHash(word []byte) uint32 {
	return gramIndex(uint64(word[0])|uint64(word[1])<<8|uint64(word[2])<<16) >> (gramBits - levelIndexBits)
}

// LevelOf returns the level that a word is the name of, in any case, or 0.
func LevelOf(word []byte) uint8 {
	if len(word) < 3 || len(word) > longestLevelWord {
		return 0
	}
	list := levelIndex[levelHash(word)]
	if list == 0 {
		return 0
	}
	for _, w := range levelLists[list] {
		if len(w.text) == len(word) && hasFoldedPrefix(word, w.text) {
			return w.level
		}
	}
	return 0
}

// KlogLevel returns the level that the first word of klog's lines states: a letter and the date, as
// in "I0102 15:04:05". It returns 0 for other words.
func KlogLevel(word []byte) uint8 {
	if len(word) != 5 || strings.Trim(string(word[1:]), "0123456789") != "" {
		return 0
	}
	switch word[0] {
	case 'I':
		return levelInfo
	case 'W':
		return levelWarn
	case 'E':
		return levelError
	case 'F':
		return levelFatal
	default:
		return 0
	}
}

// IsLevelKey reports whether a key of a logfmt line names the level of the line.
func IsLevelKey(key string) bool { return key == "level" || key == "lvl" || key == "severity" }

// isErrorWord reports whether a word names a level of at least error, in any case, or states that
// something failed.
func isErrorWord(w string) bool {
	return LevelOf([]byte(w)) >= levelError || strings.EqualFold(w, "failed")
}

// isErrorCapitals reports whether a word names a level of at least error in capitals.
func isErrorCapitals(w string) bool { return isErrorWord(w) && w == strings.ToUpper(w) }
