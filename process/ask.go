package process

// An Ask is what a call has last asked of an entry. What happens without a call, such as a restart by the
// policy or the end of the session, leaves it as it is, or is none. The zero Ask is none.
type Ask struct {
	What AskWhat
	// By is for whom the call was made, "" for the client of this session.
	By string
}

// AskWhat is what a call asks for.
type AskWhat string

// The values of AskWhat.
const (
	AskStart   AskWhat = "start"
	AskRestart AskWhat = "restart" // also of a process that has ended, or never ran
	AskStop    AskWhat = "stop"
)
