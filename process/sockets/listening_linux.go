package sockets

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"pmcp/process/proctab"
)

// Listening returns every listening TCP socket in this network namespace,
// without holders; see AddHolders.
func Listening() ([]Socket, error) {
	if found, err := diagListening(); err == nil {
		return found, nil
	}
	return procListening() // sock_diag is missing in this sandbox or kernel
}

// procListening returns every listening TCP socket from /proc/net/tcp and /proc/net/tcp6.
func procListening() (found []Socket, err error) {
	err = eachSocket(func(s tcpSocket) {
		if s.listens {
			found = append(found, Socket{Addr: s.local, Key: s.inode})
		}
	})
	return found, err
}

// Clients returns the client's ends of the connections to a port that are open, or were closed
// within the last minute, as far as they are on this machine. A closed end has no Key.
func Clients(port int) (found []Socket, err error) {
	err = eachSocket(func(s tcpSocket) {
		switch {
		case s.listens:
		case int(s.remote.Port()) == port:
			found = append(found, Socket{Addr: s.local, Key: s.inode})
		case int(s.local.Port()) == port: // only the server's end may be left of a closed connection
			found = append(found, Socket{Addr: s.remote})
		}
	})
	return found, err
}

// Connections returns the connections whose end on this machine has that port, open or closed. They
// keep the port from a program that sets no SO_REUSEADDR.
func Connections(port int) (found []Connection, err error) {
	err = eachSocket(func(s tcpSocket) {
		if !s.listens && int(s.local.Port()) == port {
			found = append(found, Connection{Socket{Addr: s.local, Key: s.inode}, stateNames[s.state], s.timeLeft()})
		}
	})
	return found, err
}

// stateNames are the states of a connection, as /proc/net/tcp has them.
var stateNames = map[string]string{
	"01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT",
	"07": "CLOSE", "08": "CLOSE_WAIT", "09": "LAST_ACK", "0B": "CLOSING",
}

// timeLeft returns how long a closed connection will still be there, or 0 if that is not known.
func (s *tcpSocket) timeLeft() time.Duration {
	const timeWait, tick = "03", time.Second / 100 // the kernel counts in hundredths for programs
	kind, when, _ := bytes.Cut(s.timer, []byte(":"))
	n, err := strconv.ParseUint(string(when), 16, 32)
	if err != nil || string(kind) != timeWait {
		return 0
	}
	return time.Duration(n) * tick
}

// User returns the id of the user that opened a socket, or "" if it is not known.
func User(s Socket) (uid string) {
	_ = eachSocket(func(t tcpSocket) { // what cannot be read is not known
		if t.inode == s.Key {
			uid = t.uid
		}
	})
	return uid
}

// A tcpSocket is a line of /proc/net/tcp or /proc/net/tcp6.
type tcpSocket struct {
	local, remote netip.AddrPort
	listens       bool
	state         string // as in stateNames
	timer         []byte // which timer runs, and how long
	uid           string
	inode         uint64
}

// eachSocket calls f with each TCP socket in /proc/net/tcp and /proc/net/tcp6.
func eachSocket(f func(tcpSocket)) error {
	const listen = "0A"
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // no such address family
				continue
			}
			return fmt.Errorf("cannot read the ports: %w", err)
		}
		// A line has: number, local address, remote address, state, queues, timer, retransmits, uid,
		// timeout, inode.
		for line := range bytes.Lines(text) {
			fields := bytes.Fields(line)
			if len(fields) < 10 {
				continue
			}
			local, ok := parseAddr(fields[1])
			remote, remoteOK := parseAddr(fields[2])
			inode, err := strconv.ParseUint(string(fields[9]), 10, 64)
			if ok && remoteOK && err == nil {
				state := string(fields[3])
				f(tcpSocket{local, remote, state == listen, state, fields[5], string(fields[7]), inode})
			}
		}
	}
	return nil
}

// parseAddr returns the address in a field of /proc/net/tcp, and reports whether it is one.
func parseAddr(field []byte) (netip.AddrPort, bool) {
	host, port, ok := bytes.Cut(field, []byte(":"))
	raw, err := hex.DecodeString(string(host))
	if !ok || err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 { // each 32 bits in the machine's order
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	number, err := strconv.ParseUint(string(port), 16, 16)
	return netip.AddrPortFrom(addr, uint16(number)), ok && err == nil
}

// AddHolders adds to each of sockets the pids of those procs that have it open.
func AddHolders(sockets []Socket, procs []proctab.Proc) {
	index := make(map[uint64]int, len(sockets))
	for i, s := range sockets {
		index[s.Key] = i
	}
	for _, p := range procs {
		eachSocketOf(p.PID, func(inode uint64) {
			if i, ok := index[inode]; ok {
				sockets[i].Holders = append(sockets[i].Holders, p.PID)
			}
		})
	}
}

// eachSocketOf calls f with the inode of each socket that pid has open.
func eachSocketOf(pid int, f func(inode uint64)) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	fds, err := os.Open(dir)
	if err != nil {
		return
	}
	names, _ := fds.Readdirnames(-1)
	_ = fds.Close()
	for _, name := range names {
		target, err := os.Readlink(dir + name)
		if err != nil {
			continue
		}
		if number, ok := strings.CutPrefix(target, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); err == nil {
				f(inode)
			}
		}
	}
}
