package process

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

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// listening returns every listening TCP socket in this network namespace,
// without holders; see addHolders.
func listening() ([]socket, error) {
	v4, err := diagListening(unix.AF_INET)
	if err != nil {
		return procListening() // no such netlink: a sandbox, or a kernel without
	}
	v6, err := diagListening(unix.AF_INET6)
	if err != nil {
		v6 = nil // a machine without IPv6
	}
	return append(v4, v6...), nil
}

// procListening does the same by /proc/net/tcp and tcp6.
func procListening() ([]socket, error) {
	var found []socket
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

// retryEINTR calls call until a signal does not interrupt it.
func retryEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// parseSocket reads a line of /proc/net/tcp: number, local address, remote
// address, state, queues, timer, retransmits, uid, timeout, inode. It is false
// for what is not a listening socket.
func parseSocket(line []byte) (socket, bool) {
	const listen = "0A"
	fields := bytes.Fields(line)
	if len(fields) < 10 || string(fields[3]) != listen {
		return socket{}, false
	}
	host, port, ok := bytes.Cut(fields[1], []byte(":"))
	raw, err := hex.DecodeString(string(host))
	if !ok || err != nil || len(raw)%4 != 0 {
		return socket{}, false
	}
	for i := 0; i < len(raw); i += 4 { // each 32 bits in the machine's order
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	number, err := strconv.ParseUint(string(port), 16, 16)
	inode, inodeErr := strconv.ParseUint(string(fields[9]), 10, 64)
	if !ok || err != nil || inodeErr != nil {
		return socket{}, false
	}
	return socket{addr: netip.AddrPortFrom(addr, uint16(number)), key: inode}, true
}

// addHolders enters which of pids have which of sockets open.
func addHolders(sockets []socket, pids []int) {
	index := make(map[uint64]int, len(sockets))
	for i, s := range sockets {
		index[s.key] = i
	}
	for _, pid := range pids {
		eachSocketOf(pid, func(inode uint64) {
			if i, ok := index[inode]; ok {
				sockets[i].holders = append(sockets[i].holders, pid)
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

// memory returns the resident memory of a process, shared pages included.
func memory(pid int) uint64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm") // size resident shared …, in pages
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return pages * uint64(os.Getpagesize())
}

// cpuTicks is the processor time that p has used so far.
func cpuTicks(p proctab.Proc) uint64 { return p.CPU }

// commandLine returns the command line of a process, its arguments joined by
// spaces; "" for a zombie or what is gone.
func commandLine(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}
