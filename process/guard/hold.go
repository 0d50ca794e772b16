package guard

import (
	"os"
	"time"

	"pmcp/process/proctab"
)

// HoldVerb is the first argument of the program when it runs as the guardian of a command.
// The second is the session id; the command and its arguments follow.
const HoldVerb = "__hold"

// commandGrace is how long a command has to end after a forwarded signal.
const commandGrace = 5 * time.Second

// Hold starts the program path with the arguments argv and guards it: the program has this
// process's descriptors 0 to 2, which are not touched, and c.ID is its mark. Hold is what the
// guardian of Run starts with HoldVerb in the place of the server. life, the lifeline to that
// guardian, ends the command when the guardian is dead or its parent has changed.
//
// Hold returns when the program and all its descendants have ended, with the code to exit
// with: the program's own, 128 and the number of the signal that killed it, or 126 if it cannot
// be executed. A command that is to end has 5 s after the signal, which goes to the program
// alone; what the program leaves then has c.Grace. Hold ignores Verb, Args and Lock of c. As Run,
// it waits for every child of the process.
func Hold(c Config, life *Lifeline, path string, argv []string) (exitCode int) {
	t := defaultTiming
	t.killAfter = commandGrace
	return hold(c, t, life, path, argv)
}

func hold(c Config, t timing, life *Lifeline, path string, argv []string) (exitCode int) {
	g := newGuardian(c, t)
	g.command, g.gone, g.changed = true, life.Gone(), life.ParentChanged()
	return g.live(func() error {
		if err := os.Setenv(proctab.EnvSession, c.ID); err != nil {
			return err
		}
		return proctab.Stamped(proctab.SessionStamp(c.ID), func() error { return g.spawn(path, argv, os.Environ()) })
	})
}
