package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// era is how the client of a connection speaks.
type era int32

const (
	eraUnknown era = iota // nothing said yet
	eraLegacy             // 2024-11-05 … 2025-11-25, begun by initialize
	eraModern             // 2026-07-28: no handshake, _meta in each request
)

// defaultLogLevel holds until a legacy client sets one.
const defaultLogLevel = mcp.LoggingLevelWarning

// session is what mcp-go knows of the client of one connection. Handlers find a
// requestSession in their context, which embeds it. All methods may be called
// from any goroutine.
type session struct {
	id          string
	broadcasts  *feed // what mcp-go sends to all or to a session by its id
	era         atomic.Int32
	initialized atomic.Bool
	level       atomic.Pointer[mcp.LoggingLevel]
	info        atomic.Pointer[mcp.Implementation]
	caps        atomic.Pointer[mcp.ClientCapabilities]
	version     atomic.Pointer[string]

	mu       sync.Mutex
	uris     map[string]bool  // legacy resource subscriptions
	listened int              // resources that subscriptions/listen streams ask for
	listens  []*listenSession // open subscriptions/listen streams
	onClient []func(name, version string)
	told     bool // onClient was called
}

var (
	_ mcpserver.SessionWithLogging               = (*session)(nil)
	_ mcpserver.SessionWithClientInfo            = (*session)(nil)
	_ mcpserver.SessionWithProtocolVersion       = (*session)(nil)
	_ mcpserver.SessionWithResourceSubscriptions = (*session)(nil)
	_ mcpserver.SessionWithSubscriptionFilter    = (*session)(nil)
)

func newSession() *session {
	return &session{id: uuid.NewString(), uris: map[string]bool{}}
}

// SessionID is unique to the connection.
func (s *session) SessionID() string { return s.id }

// Initialize is called by mcp-go for a 2026-07-28 request. The legacy
// handshake is marked by the connection, after its answer was queued.
func (s *session) Initialize() { s.initialized.Store(true) }

// Initialized tells whether notifications may be sent.
func (s *session) Initialized() bool { return s.initialized.Load() }

// NotificationChannel takes broadcasts. mcp-go drops when it is full.
func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification {
	return s.broadcasts.channel()
}

// SetLogLevel is called for logging/setLevel.
func (s *session) SetLogLevel(level mcp.LoggingLevel) { s.level.Store(&level) }

// GetLogLevel is the least level that a legacy client wants to see.
func (s *session) GetLogLevel() mcp.LoggingLevel { return loadOr(&s.level, defaultLogLevel) }

// GetClientInfo is what the client last said of itself.
func (s *session) GetClientInfo() mcp.Implementation { return loadOr(&s.info, mcp.Implementation{}) }

// SetClientInfo tells those who wait for the client's name.
func (s *session) SetClientInfo(info mcp.Implementation) {
	s.info.Store(&info)
	if info.Name == "" && info.Version == "" {
		return
	}
	s.mu.Lock()
	waiting := s.onClient
	s.onClient, s.told = nil, true
	s.mu.Unlock()
	for _, f := range waiting {
		f(info.Name, info.Version)
	}
}

// whenClientKnown calls f once, now if the client has said who it is.
func (s *session) whenClientKnown(f func(name, version string)) {
	s.mu.Lock()
	told := s.told
	if !told {
		s.onClient = append(s.onClient, f)
	}
	s.mu.Unlock()
	if told {
		info := s.GetClientInfo()
		f(info.Name, info.Version)
	}
}

// GetClientCapabilities is what the client last declared.
func (s *session) GetClientCapabilities() mcp.ClientCapabilities {
	return loadOr(&s.caps, mcp.ClientCapabilities{})
}

// SetClientCapabilities is called by mcp-go.
func (s *session) SetClientCapabilities(caps mcp.ClientCapabilities) { s.caps.Store(&caps) }

// ProtocolVersion is what initialize settled; empty before, and for 2026-07-28.
func (s *session) ProtocolVersion() string { return loadOr(&s.version, "") }

// SetProtocolVersion is called by mcp-go.
func (s *session) SetProtocolVersion(version string) { s.version.Store(&version) }

// SetSubscriptionFilter is called on the stream's own listenSession instead.
func (s *session) SetSubscriptionFilter(mcp.SubscriptionFilter) {}

// SubscriptionFilter lets mcp-go broadcast everything to a legacy client, and
// to a 2026-07-28 client only what one of its streams asked for.
func (s *session) SubscriptionFilter() (mcp.SubscriptionFilter, bool) {
	if s.currentEra() != eraModern {
		return mcp.SubscriptionFilter{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all mcp.SubscriptionFilter
	for _, l := range s.listens {
		all.ToolsListChanged = all.ToolsListChanged || l.filter.ToolsListChanged
		all.PromptsListChanged = all.PromptsListChanged || l.filter.PromptsListChanged
		all.ResourcesListChanged = all.ResourcesListChanged || l.filter.ResourcesListChanged
	}
	return all, true
}

func (s *session) currentEra() era { return era(s.era.Load()) }

// beginLegacy marks that initialize was answered.
func (s *session) beginLegacy() {
	s.era.Store(int32(eraLegacy))
	s.initialized.Store(true)
}

func (s *session) beginModern() { s.era.Store(int32(eraModern)) }

func (s *session) addListen(l *listenSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listens = append(s.listens, l)
}

func (s *session) removeListen(l *listenSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listens = slices.DeleteFunc(s.listens, func(other *listenSession) bool { return other == l })
}

// listensFor gives the streams that asked for a notification.
func (s *session) listensFor(n mcp.JSONRPCNotification) []*listenSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	var wanting []*listenSession
	for _, l := range s.listens {
		if l.wants(n) {
			wanting = append(wanting, l)
		}
	}
	return wanting
}

func loadOr[T any](p *atomic.Pointer[T], otherwise T) T {
	if v := p.Load(); v != nil {
		return *v
	}
	return otherwise
}

// wantsLegacy holds back updates of resources without a subscription, and log
// messages below the level.
func (s *session) wantsLegacy(n mcp.JSONRPCNotification) bool {
	switch n.Method {
	case mcp.MethodNotificationResourceUpdated:
		uri, _ := n.Params.AdditionalFields["uri"].(string)
		return s.IsSubscribedToResource(uri)
	case methodLogMessage:
		switch level := n.Params.AdditionalFields["level"].(type) {
		case mcp.LoggingLevel:
			return level.ShouldSendTo(s.GetLogLevel())
		case string:
			return mcp.LoggingLevel(level).ShouldSendTo(s.GetLogLevel())
		}
	}
	return true
}
