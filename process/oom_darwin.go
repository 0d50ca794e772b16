package process

// oomWatch is blind on macOS, which tells nobody whom its killer took.
type oomWatch struct{}

func newOOMWatch() *oomWatch { return &oomWatch{} }

func (*oomWatch) note()        {}
func (*oomWatch) struck() bool { return false }
