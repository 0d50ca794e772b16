package fault

// The bounds of what is kept. What exceeds them is cut, never refused.
const (
	// MaxStack is the most lines in a Fault's Stack: the first and the last ones of a longer stack,
	// with a line between them that counts what was left out.
	MaxStack = 64
	// MaxStackLine is the most bytes of one line of a Stack.
	MaxStackLine = 512
	// MaxMessage is the most bytes of a Fault's Message, and maxField those of its Type and its File.
	MaxMessage = 2048
	maxField   = 512
	// MaxOpen is the most errors of one stream that may be unfinished at once; one more closes the oldest.
	MaxOpen = 8
)

// Fault is one error that a program reported.
type Fault struct {
	// Category is what kind of trouble it is: one of the Category constants.
	Category string
	// Type is the program's own name of the error: "TypeError", "panic",
	// "java.lang.IllegalStateException", "E0308", "TS2322", "no-undef", "SIGSEGV". Empty when the
	// error has none.
	Type string
	// Message says what went wrong, in the program's words; lines are separated by \n, at most MaxMessage bytes.
	Message string
	// File is where it happened, as the program wrote it; of a stack the innermost frame that is
	// the user's own code if there is one. Empty when unknown.
	File string
	// Line and Column count from 1 in File; 0 when unknown.
	Line, Column int
	// Stack is the stack trace as it was printed, or the lines that show the error in its source.
	// At most MaxStack lines of at most MaxStackLine bytes.
	Stack []string
	// FirstLine and LastLine are the numbers, as given to Recogniser.Line, of the first and last
	// line that belong to the error. Both are 0 for an end of a run that printed nothing.
	FirstLine, LastLine int64
	// Stream is the stream that it was printed on, as given to Recogniser.Line.
	Stream uint8
	// Fingerprint is the same for the same error at another time: with other numbers, addresses,
	// ids, times or temporary paths. 32 hexadecimal digits, stable across sessions.
	Fingerprint string
}
