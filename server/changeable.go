package server

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/process"
)

// changeable is what a call changes of a process that goes on running.
type changeable struct {
	spec   process.Spec
	health *health.Spec
	member []groups.Member // in the group that the call names; none if it is not in it
}

// changeable reads that of name; group is the one that the call names, or "".
func (s *Server) changeable(ctx context.Context, name, group string) (c changeable) {
	if st, err := s.o.Manager.Status(name); err == nil {
		c.spec = st.Spec
	}
	if st, ok := s.o.Health.Status(name); ok {
		c.health = &st.Spec
	}
	c.member = s.membership(ctx, name, group)
	return c
}

// membership is what name is in a group; none if it is not in it, or group is "".
func (s *Server) membership(ctx context.Context, name, group string) []groups.Member {
	if group == "" {
		return nil
	}
	g, err := s.o.Groups.Group(ctx, group)
	if err != nil { // it is in none
		return nil
	}
	return slices.DeleteFunc(slices.Clone(g.Members), func(m groups.Member) bool { return m.Process != name })
}

// since says what is not as before; nothing if there was no process before.
func (c changeable) since(before changeable) (hint string) {
	if before.spec.Name == "" {
		return ""
	}
	return changedHint(c.differs(before))
}

func changedHint(arguments []string) string {
	if len(arguments) == 0 {
		return ""
	}
	return "changed without a restart: " + strings.Join(arguments, ", ")
}

// differs names what is not as in other, in the words of the tools.
func (c changeable) differs(other changeable) (names []string) {
	for _, x := range []struct {
		name        string
		its, others any
	}{
		{"group", c.member, other.member},
		{"health", c.health, other.health},
		{"limits", c.spec.Limits, other.spec.Limits},
		{"max_restarts", c.spec.MaxRestarts, other.spec.MaxRestarts},
		{"restart", c.spec.Restart, other.spec.Restart},
		{"stop", c.spec.Stop, other.spec.Stop},
	} {
		if !reflect.DeepEqual(x.its, x.others) {
			names = append(names, x.name)
		}
	}
	return names
}

// gives says whether a has that argument, one that can change while a process runs.
func (a specArgs) gives(argument string) bool {
	switch argument {
	case "health":
		return a.Health != nil
	case "limits":
		return a.Limits != nil
	case "max_restarts":
		return a.MaxRestarts != 0
	case "restart":
		return a.Restart != ""
	case "stop":
		return a.Stop != nil
	}
	return false
}
