package process

import (
	"fmt"
	"net/netip"

	psnet "github.com/shirou/gopsutil/v4/net"
	psprocess "github.com/shirou/gopsutil/v4/process"

	"pmcp/process/proctab"
)

// listening returns every listening TCP socket, with its holders. gopsutil asks
// lsof, so this takes tens of milliseconds.
func listening() ([]socket, error) {
	connections, err := psnet.Connections("tcp")
	if err != nil {
		return nil, fmt.Errorf("cannot read the listening ports: %w", err)
	}
	var found []socket
	for _, c := range connections {
		if c.Status != "LISTEN" {
			continue
		}
		addr, err := netip.ParseAddr(c.Laddr.IP)
		if err != nil { // "*": lsof does not say of which family
			addr = netip.IPv4Unspecified()
		}
		// One socket of several holders comes as several; nothing counts them.
		key := uint64(c.Pid)<<32 | uint64(c.Fd)<<16 | uint64(c.Laddr.Port)
		found = append(found, socket{addr: netip.AddrPortFrom(addr, uint16(c.Laddr.Port)), key: key, holders: []int{int(c.Pid)}})
	}
	return found, nil
}

// addHolders has nothing to do: listening has named them.
func addHolders([]socket, []int) {}

// memory returns the resident memory of a process.
func memory(pid int) uint64 {
	p := psprocess.Process{Pid: int32(pid)}
	info, err := p.MemoryInfo()
	if err != nil {
		return 0
	}
	return info.RSS
}

// cpuTicks is the processor time that p has used so far.
func cpuTicks(p proctab.Proc) uint64 {
	times, err := (&psprocess.Process{Pid: int32(p.PID)}).Times()
	if err != nil {
		return 0
	}
	return uint64((times.User + times.System) * proctab.TicksPerSecond)
}

// commandLine returns the command line of a process, or "".
func commandLine(pid int) string {
	text, _ := (&psprocess.Process{Pid: int32(pid)}).Cmdline()
	return text
}
