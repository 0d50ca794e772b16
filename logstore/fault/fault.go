package fault

// The limits on what is kept. Longer text is truncated, never rejected.
const (
	// MaxStack is the maximum number of lines in a Fault's Stack. A longer stack keeps its first
	// and last lines, with a line between them that counts the omitted ones.
	MaxStack = 64
	// MaxStackLine is the maximum length of one line of a Stack, in bytes.
	MaxStackLine = 512
	// MaxMessage is the maximum length of a Fault's Message in bytes, and maxField that of its Type
	// and its File.
	MaxMessage = 2048
	maxField   = 512
	// MaxOpen is the maximum number of unfinished errors of one stream. When another error starts,
	// the oldest is closed.
	MaxOpen = 8
)

// A Fault is one error that a program reported.
type Fault struct {
	// Category is the kind of error: one of the Category constants.
	Category string
	// Type is the program's own name for the error: "TypeError", "panic",
	// "java.lang.IllegalStateException", "E0308", "TS2322", "no-undef", "SIGSEGV". It is empty when
	// the error has none.
	Type string
	// Message describes the error in the program's words. Lines are separated by \n; it has at most
	// MaxMessage bytes.
	Message string
	// File is the file where the error happened, as the program wrote it. For a stack it is the
	// file of the innermost frame in the user's own code, if there is one. It is empty when
	// unknown.
	File string
	// Line and Column are positions in File, counted from 1; 0 when unknown.
	Line, Column int
	// Stack is the stack trace as it was printed, or the source lines that show the error. It has
	// at most MaxStack lines of at most MaxStackLine bytes.
	Stack []string
	// FirstLine and LastLine are the numbers, as passed to Recogniser.Line, of the first and last
	// line that belong to the error. Both are 0 for the end of a run that printed nothing.
	FirstLine, LastLine int64
	// Stream is the stream that the error was printed on, as passed to Recogniser.Line.
	Stream uint8
	// Fingerprint identifies the error across occurrences: numbers, addresses, ids, times and
	// temporary paths do not affect it. It is 32 hexadecimal digits and stable across sessions.
	Fingerprint string
}
