package sockets

import (
	"fmt"
	"net/netip"

	psnet "github.com/shirou/gopsutil/v4/net"

	"pmcp/process/proctab"
)

// Listening returns every listening TCP socket, with its holders. gopsutil runs lsof, so this
// takes tens of milliseconds.
func Listening() ([]Socket, error) {
	connections, err := psnet.Connections("tcp")
	if err != nil {
		return nil, fmt.Errorf("cannot read the listening ports: %w", err)
	}
	var found []Socket
	for _, c := range connections {
		if c.Status != "LISTEN" {
			continue
		}
		addr, err := netip.ParseAddr(c.Laddr.IP)
		if err != nil { // "*": lsof does not name the family
			addr = netip.IPv4Unspecified()
		}
		// A socket with several holders appears several times; no caller counts sockets.
		key := uint64(c.Pid)<<32 | uint64(c.Fd)<<16 | uint64(c.Laddr.Port)
		found = append(found, Socket{Addr: netip.AddrPortFrom(addr, uint16(c.Laddr.Port)), Key: key, Holders: []int{int(c.Pid)}})
	}
	return found, nil
}

// User returns "": lsof does not show the sockets of other users.
func User(Socket) string { return "" }

// Connections returns nil: lsof shows no connection without a process.
func Connections(int) ([]Connection, error) { return nil, nil }

// Clients returns the client's ends of the open connections to a port, with their holders, as far as
// they are on this machine.
func Clients(port int) ([]Socket, error) {
	connections, err := psnet.Connections("tcp")
	if err != nil {
		return nil, fmt.Errorf("cannot read the ports: %w", err)
	}
	var found []Socket
	for _, c := range connections {
		if addr, err := netip.ParseAddr(c.Laddr.IP); err == nil && int(c.Raddr.Port) == port {
			found = append(found, Socket{Addr: netip.AddrPortFrom(addr, uint16(c.Laddr.Port)), Holders: []int{int(c.Pid)}})
		}
	}
	return found, nil
}

// AddHolders does nothing: Listening has already added the holders.
func AddHolders([]Socket, []proctab.Proc) {}
