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
func procListening() ([]Socket, error) {
	var found []Socket
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // no such address family
				continue
			}
			return found, fmt.Errorf("cannot read the listening ports: %w", err)
		}
		for line := range bytes.Lines(text) {
			if s, ok := parseSocket(line); ok {
				found = append(found, s)
			}
		}
	}
	return found, nil
}

// parseSocket returns the socket in a line of /proc/net/tcp: number, local address, remote
// address, state, queues, timer, retransmits, uid, timeout, inode. It reports whether the line
// is that of a listening socket.
func parseSocket(line []byte) (Socket, bool) {
	const listen = "0A"
	fields := bytes.Fields(line)
	if len(fields) < 10 || string(fields[3]) != listen {
		return Socket{}, false
	}
	host, port, ok := bytes.Cut(fields[1], []byte(":"))
	raw, err := hex.DecodeString(string(host))
	if !ok || err != nil || len(raw)%4 != 0 {
		return Socket{}, false
	}
	for i := 0; i < len(raw); i += 4 { // each 32 bits in the machine's order
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	number, err := strconv.ParseUint(string(port), 16, 16)
	inode, inodeErr := strconv.ParseUint(string(fields[9]), 10, 64)
	if !ok || err != nil || inodeErr != nil {
		return Socket{}, false
	}
	return Socket{Addr: netip.AddrPortFrom(addr, uint16(number)), Key: inode}, true
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
