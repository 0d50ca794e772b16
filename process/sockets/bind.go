package sockets

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// TryBind returns nil if port can be bound on every address of this machine, with
// SO_REUSEADDR: connections in TIME_WAIT do not keep a port. It tries IPv4 and IPv6 one
// after the other; a family that the machine lacks does not count. It does not listen, so
// no client can connect. Its errors wrap EADDRINUSE, EACCES or another errno.
func TryBind(port int) error {
	v4 := tryBind(unix.AF_INET, &unix.SockaddrInet4{Port: port})
	if v4 != nil && !isMissing(v4) {
		return fmt.Errorf("cannot bind port %d: %w", port, v4)
	}
	v6 := tryBind(unix.AF_INET6, &unix.SockaddrInet6{Port: port})
	if v6 != nil && !isMissing(v6) {
		return fmt.Errorf("cannot bind port %d for IPv6: %w", port, v6)
	}
	return nil
}

// isMissing reports whether err is that of an address family that the machine lacks.
func isMissing(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EPROTONOSUPPORT)
}

func tryBind(family int, address unix.Sockaddr) error {
	syscall.ForkLock.RLock() // no child inherits the socket
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if family == unix.AF_INET6 { // IPv4 has had its turn
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
	}
	return unix.Bind(fd, address)
}
