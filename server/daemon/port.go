package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"pmcp/process/proctab"
	"pmcp/process/sockets"
)

// ListenTCP listens on a TCP address; it returns nil for "". If the port is taken, the error names the
// process that listens on it.
func ListenTCP(address string) (*net.TCPListener, error) {
	if address == "" {
		return nil, nil
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		if s, procs, found := listener(at.AddrPort(), 0); found {
			err = fmt.Errorf("%w: %s listens there", err, holders(s, procs))
		}
	}
	return l, err
}

// checkTCP returns an error unless the server of the daemon, 0 for none, is what listens on a TCP address,
// or nothing does.
func checkTCP(address string, server int) error {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	s, procs, found := listener(at.AddrPort(), server)
	switch {
	case found && (server == 0 || !slices.Contains(s.Holders, server)):
		return fmt.Errorf("%s listens on the daemon's TCP address %s: end it, or set PM_DAEMON_TCP_PORT to another port", holders(s, procs), address)
	case !found && server != 0:
		return fmt.Errorf("the daemon does not listen on %s: it was started without PM_DAEMON_TCP_BIND and PM_DAEMON_TCP_PORT, or the port was taken then", address)
	}
	return nil
}

// listener returns the socket to which a connection to an address goes, that of the process server if there
// are several, and a snapshot of all processes.
func listener(at netip.AddrPort, server int) (s sockets.Socket, procs []proctab.Proc, found bool) {
	all, err := sockets.Listening()
	if err == nil {
		procs, err = proctab.All()
	}
	if err != nil {
		return s, nil, false
	}
	all = slices.DeleteFunc(all, func(s sockets.Socket) bool {
		ip := s.Addr.Addr().Unmap()
		return s.Addr.Port() != at.Port() || ip != at.Addr().Unmap() && !ip.IsUnspecified()
	})
	sockets.AddHolders(all, procs)
	if len(all) == 0 {
		return s, procs, false
	}
	own := slices.IndexFunc(all, func(s sockets.Socket) bool { return slices.Contains(s.Holders, server) })
	return all[max(own, 0)], procs, true
}

// holders names the processes that have a listening socket open or, as this process sees only those of
// its own user, the user.
func holders(s sockets.Socket, procs []proctab.Proc) string {
	if len(s.Holders) > 0 {
		return proctab.Describe(slices.DeleteFunc(slices.Clone(procs), func(p proctab.Proc) bool { return !slices.Contains(s.Holders, p.PID) }))
	}
	if uid := sockets.User(s); uid != "" {
		return "a process of user " + uid
	}
	return "a process of another user"
}
