package stdio

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// era is the family of protocol versions that the client of a connection uses.
type era int32

const (
	eraUnknown era = iota // the client has sent no request that shows its era
	eraLegacy             // 2024-11-05 … 2025-11-25, started by initialize
	eraModern             // 2026-07-28: no handshake, _meta in each request
)

// defaultLogLevel is the log level until a legacy client sets one.
const defaultLogLevel = mcp.LoggingLevelWarning

// session is mcp-go's view of the client of one connection. Handlers find a
// RequestSession, which embeds the session, in their context. All methods may be
// called from any goroutine.
type session struct {
	id       string
	onClient func(name, version string) // see Options
	named    sync.Once                  // guards the call of onClient
	era      atomic.Int32
	level    atomic.Pointer[mcp.LoggingLevel]
	info     atomic.Pointer[mcp.Implementation]
	caps     atomic.Pointer[mcp.ClientCapabilities]
	version  atomic.Pointer[string]

	mu              sync.Mutex
	uris            map[string]bool  // legacy resource subscriptions
	streamResources int              // the number of resources that subscriptions/listen streams ask for
	streams         []*listenSession // open subscriptions/listen streams
}

var (
	_ mcpserver.SessionWithLogging               = (*session)(nil)
	_ mcpserver.SessionWithClientInfo            = (*session)(nil)
	_ mcpserver.SessionWithProtocolVersion       = (*session)(nil)
	_ mcpserver.SessionWithResourceSubscriptions = (*session)(nil)
	_ mcpserver.SessionWithSubscriptionFilter    = (*listenSession)(nil)
)

func newSession(onClient func(name, version string)) *session {
	return &session{id: uuid.NewString(), onClient: onClient, uris: map[string]bool{}}
}

// SessionID returns an id that is unique to the connection.
func (s *session) SessionID() string { return s.id }

// Initialize is called by mcp-go. It does nothing: the connection sets the era after it
// has queued the answer to initialize, and before it handles a 2026-07-28 request.
func (s *session) Initialize() {}

// Initialized reports whether notifications may be sent.
func (s *session) Initialized() bool { return s.currentEra() != eraUnknown }

// NotificationChannel returns no channel, so that mcp-go refuses what handlers send
// through it; see Notify.
func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification { return nil }

// SetLogLevel is called by mcp-go for logging/setLevel.
func (s *session) SetLogLevel(level mcp.LoggingLevel) { s.level.Store(&level) }

// GetLogLevel returns the minimum level of messages that a legacy client wants.
func (s *session) GetLogLevel() mcp.LoggingLevel { return loadOr(&s.level, defaultLogLevel) }

// GetClientInfo returns the name and version that the client last gave.
func (s *session) GetClientInfo() mcp.Implementation { return loadOr(&s.info, mcp.Implementation{}) }

// SetClientInfo records the client's name and, the first time, passes it on.
func (s *session) SetClientInfo(info mcp.Implementation) {
	s.info.Store(&info)
	if s.onClient != nil && (info.Name != "" || info.Version != "") {
		s.named.Do(func() { s.onClient(info.Name, info.Version) })
	}
}

// GetClientCapabilities returns the capabilities that the client last declared.
func (s *session) GetClientCapabilities() mcp.ClientCapabilities {
	return loadOr(&s.caps, mcp.ClientCapabilities{})
}

// SetClientCapabilities is called by mcp-go.
func (s *session) SetClientCapabilities(caps mcp.ClientCapabilities) { s.caps.Store(&caps) }

// ProtocolVersion returns the version that initialize negotiated; it is ""
// before initialize and for 2026-07-28.
func (s *session) ProtocolVersion() string { return loadOr(&s.version, "") }

// SetProtocolVersion is called by mcp-go.
func (s *session) SetProtocolVersion(version string) { s.version.Store(&version) }

func (s *session) currentEra() era { return era(s.era.Load()) }

func (s *session) setEra(e era) { s.era.Store(int32(e)) }

func (s *session) addStream(l *listenSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.ended {
		s.streams = append(s.streams, l)
	}
}

func (s *session) removeStream(l *listenSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.ended = true
	s.streams = slices.DeleteFunc(s.streams, func(other *listenSession) bool { return other == l })
}

// streamsWanting returns the streams that asked for notifications like n.
func (s *session) streamsWanting(n mcp.JSONRPCNotification) []*listenSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	var streams []*listenSession
	for _, l := range s.streams {
		if l.wants(n) {
			streams = append(streams, l)
		}
	}
	return streams
}

func loadOr[T any](p *atomic.Pointer[T], otherwise T) T {
	if v := p.Load(); v != nil {
		return *v
	}
	return otherwise
}

// wantsLegacy reports whether n may go to a legacy client. It refuses updates of
// resources without a subscription, and log messages below the level.
func (s *session) wantsLegacy(n mcp.JSONRPCNotification) bool {
	switch n.Method {
	case mcp.MethodNotificationResourceUpdated:
		uri, _ := n.Params.AdditionalFields["uri"].(string)
		return s.IsSubscribedToResource(uri)
	case MethodLogMessage:
		switch level := n.Params.AdditionalFields["level"].(type) {
		case mcp.LoggingLevel:
			return level.ShouldSendTo(s.GetLogLevel())
		case string:
			return mcp.LoggingLevel(level).ShouldSendTo(s.GetLogLevel())
		}
	}
	return true
}
