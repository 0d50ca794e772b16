package stdio

import (
	"context"
	"encoding/json"
	"time"
)

// ProgressInterval is the period at which ReportProgress sends notifications.
const ProgressInterval = 3 * time.Second

// ProgressToken returns the progress token of the request of ctx as the client
// wrote it, or nil if there is none.
func ProgressToken(ctx context.Context) json.RawMessage {
	s := SessionFromContext(ctx)
	if s == nil {
		return nil
	}
	var params struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if json.Unmarshal(s.req.Params, &params) != nil || string(params.Meta.Token) == "null" {
		return nil
	}
	return params.Meta.Token
}

// ReportProgress sends a progress notification for the request of ctx every
// ProgressInterval, with the text that message returns at that time, until the
// returned function stop is called. stop returns once the last notification has
// been queued. ReportProgress does nothing if the client did not ask for
// progress.
func ReportProgress(ctx context.Context, message func() string) (stop func()) {
	return ReportProgressEvery(ctx, ProgressInterval, nil, message)
}

// ReportProgressEvery is like ReportProgress, but with the given period. It also
// sends a notification whenever it receives from news, which may be nil.
func ReportProgressEvery(ctx context.Context, period time.Duration, news <-chan struct{}, message func() string) (stop func()) {
	token := ProgressToken(ctx)
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
			case <-news:
			case <-ctx.Done():
				return
			}
			_ = Notify(ctx, MethodProgress, map[string]any{ // fails only if the request has ended
				"progressToken": token, "progress": n, "message": message(),
			})
		}
	}()
	return func() { cancel(); <-done }
}
