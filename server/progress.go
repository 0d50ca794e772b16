package server

import (
	"context"
	"encoding/json"
	"time"
)

// progressPeriod is how often a call that waits says that it still does.
const progressPeriod = 3 * time.Second

// progressToken is the token of the call of ctx as its client wrote it; nil if
// it gave none.
func progressToken(ctx context.Context) json.RawMessage {
	view := requestView(ctx)
	if view == nil {
		return nil
	}
	var params struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if json.Unmarshal(view.req.params, &params) != nil || string(params.Meta.Token) == "null" {
		return nil
	}
	return params.Meta.Token
}

// report sends progress notifications for the call of ctx every few seconds,
// with what message says then, until the returned stop is called; stop returns
// when the last has been handed over. It does nothing for a client that did not
// ask for progress.
func report(ctx context.Context, message func() string) (stop func()) {
	return reportEvery(ctx, progressPeriod, nil, message)
}

// reportEvery is report with another period; a message is also due when news
// comes. nil news never comes.
func reportEvery(ctx context.Context, period time.Duration, news <-chan struct{}, message func() string) (stop func()) {
	token := progressToken(ctx)
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
			_ = notifyRequest(ctx, methodProgress, map[string]any{ // fails only when the call has ended
				"progressToken": token, "progress": n, "message": message(),
			})
		}
	}()
	return func() { cancel(); <-done }
}
