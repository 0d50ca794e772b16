package proctab

// Newest returns 0: macOS does not report it.
func Newest() int { return 0 }

// A Scanner is All: macOS has no child subreapers, so a process may be re-parented into
// any tree.
type Scanner struct{}

// NewScanner returns a Scanner for the processes below root.
func NewScanner(root int) *Scanner { return &Scanner{} }

// Forget does nothing.
func (s *Scanner) Forget() {}

// Scan returns what All returns.
func (s *Scanner) Scan() ([]Proc, error) { return All() }
