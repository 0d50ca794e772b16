package groups

import "errors"

// stillMember says whether member belongs to the group now: it may have been
// removed since the start began. What cannot be read is as it was.
func (s *start) stillMember(member *starting) bool {
	now, err := s.m.find(member.ctx, s.op.group.Name, false)
	if err != nil || now.problem != "" {
		return !errors.Is(err, ErrUnknown)
	}
	_, ok := now.member(member.Process)
	return ok
}

// removed enters that member does not belong to the group any more, and blocks
// what depends on it.
func (s *start) removed(member *starting) {
	s.op.set(member.Process, func(o *Outcome) {
		o.Result, o.Why, o.Blocked = Skipped, "removed from the group before its turn came", true
	})
	for _, name := range s.op.group.dependents(member.Process) {
		s.block(s.members[name], member.Process+" was not started")
	}
}
