package logstore

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
)

// A freshness is what the reads of one call share to see what other servers have not stored yet: which servers were
// asked to store it, and which have answered.
type freshness struct {
	ask     func(ctx context.Context, server string, acted bool)
	answers atomic.Int64 // how many questions are answered

	mu        sync.Mutex
	questions map[string]*question // guarded by mu; by server
}

// A question asks a server, once, to store what it has. Concurrent readers wait for the answer.
type question struct {
	server   string
	acted    bool // see Acted
	once     sync.Once
	answered atomic.Int64 // which answer of the freshness it has, from 1; 0: none yet
}

// maxAsked bounds how many servers a read asks at the same time. More are not asked.
const maxAsked = 64

type freshKey struct{}

// Fresh returns a context for the reads of one call, which then see what other live servers have done before it. A
// read that finds runs of such servers first calls ask for each of them, by its session. ask returns when the
// server has stored what it has, or cannot. It is called once for each server, and again, with acted set, after Acted
// was called for the server. It must not use the Store, and may be called from several goroutines.
func Fresh(ctx context.Context, ask func(ctx context.Context, server string, acted bool)) context.Context {
	return context.WithValue(ctx, freshKey{}, &freshness{ask: ask, questions: make(map[string]*question)})
}

// question returns the question for a server.
func (f *freshness) question(server string) *question {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.questions[server] == nil {
		f.questions[server] = &question{server: server}
	}
	return f.questions[server]
}

// await asks the questions that were not asked yet, and waits until all are answered.
func (f *freshness) await(ctx context.Context, questions []*question) {
	var asking sync.WaitGroup
	for i, q := range questions {
		asking.Go(func() {
			q.once.Do(func() {
				if i < maxAsked {
					f.ask(ctx, q.server, q.acted)
				}
				q.answered.Store(f.answers.Add(1))
			})
		})
	}
	asking.Wait()
}

// Acted records that a server has done something for the call of ctx: the next read asks it again.
func Acted(ctx context.Context, server string) {
	if f, ok := ctx.Value(freshKey{}).(*freshness); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.questions[server] = &question{server: server, acted: true}
	}
}

// errStale is returned by a read that must be repeated after other servers have answered.
var errStale = errors.New("other servers are asked first")

// checkFresh returns errStale if other live servers must be asked first, because metas has runs of theirs: a snapshot
// shows only the answers that came before it. Runs that have ended count only if ended is set.
func (s *snapshot) checkFresh(ctx context.Context, metas iter.Seq[*runMeta], ended bool) error {
	if s.fresh == nil {
		return nil
	}
	for m := range metas {
		if m.mem != nil || m.ended != 0 && !ended {
			continue
		}
		srv, err := s.server(ctx, m.id)
		if err != nil {
			return err
		}
		if !srv.alive || srv.own {
			continue
		}
		q := s.fresh.question(srv.uuid)
		if n := q.answered.Load(); (n == 0 || n > s.answers) && !slices.Contains(s.stale, q) {
			s.stale = append(s.stale, q)
		}
	}
	if len(s.stale) > 0 {
		return errStale
	}
	return nil
}
