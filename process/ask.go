package process

import "context"

// An Ask is what a call has last asked of an entry. What happens without a call, such as a restart by the
// policy or the end of the session, leaves it as it is, or is none. The zero Ask is none.
type Ask struct {
	What AskWhat
	// By is the Actor of the call, "" for the client of this session.
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

type actorKey struct{}

// WithActor returns a context for what is done for someone other than the client of this session.
func WithActor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, actorKey{}, name)
}

// Actor returns for whom something is done with ctx, "" for the client of this session.
func Actor(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}
