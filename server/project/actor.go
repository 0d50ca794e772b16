package project

import (
	"cmp"
	"strings"

	"pmcp/process/prose"
)

// Those who act, as events name them, beside clients.
const (
	ActorPage     = "the person on the page"
	actorTerminal = "the person at the terminal"
	actorWindow   = "another window" // one that does not say for whom
	actorUnnamed  = "a client without a name"
	ActorWatch    = "a change of its files" // whose restart is an event of its own
)

// maxActor bounds the name of a client in an event, in bytes.
const maxActor = 60

// PageClient is the name of the client that serves the page of pmcp open. The clients of other commands
// of pmcp begin with CommandClient.
const (
	PageClient    = CommandClient + "open"
	CommandClient = "pmcp "
)

// actorOf returns how events name what acts for a client of that name.
func actorOf(client string) string {
	switch {
	case client == PageClient:
		return ActorPage
	case strings.HasPrefix(client, CommandClient):
		return actorTerminal
	}
	return cleanActor(client)
}

// cleanActor returns a name from outside for an event, which escapes it.
func cleanActor(name string) string {
	return prose.Cut(strings.TrimSpace(name), maxActor)
}

// Actor returns by, for whom something is done, as events name them: "" is the client of this session.
func (s *Store) Actor(by string) string {
	client := ""
	if s.table != nil {
		s.table.mu.Lock()
		client = s.table.actor
		s.table.mu.Unlock()
	}
	return cmp.Or(by, client, actorUnnamed)
}

// isCommand reports whether the session serves a command of pmcp.
func (s *Store) isCommand() bool {
	actor := s.Actor("")
	return actor == actorTerminal || actor == ActorPage
}
