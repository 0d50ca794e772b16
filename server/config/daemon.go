package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// Daemon holds the variables PM_DAEMON_*: those of the daemon, which keeps processes
// beyond the end of a session.
type Daemon struct {
	Mode       string `split_words:"true" default:"disabled" enum:"disabled|enabled|never" desc:"disabled: a daemon runs only what is started with keep; enabled: it runs everything; never: keep is refused"`
	AutoStart  bool   `split_words:"true" default:"true" desc:"false: a daemon is never started, only used"`
	SocketPath string `split_words:"true" desc:"where the daemon listens beside the socket next to its record"`
	Keep       millis `split_words:"true" default:"24h" min:"1000" max:"604800000" desc:"how long processes are kept with PM_DAEMON_MODE=enabled"`
	Token      string `split_words:"true" desc:"secret that callers of the daemon must know; at least 16 characters"`
	TCPBind    string `split_words:"true" desc:"loopback address on which the daemon also listens, 127.0.0.1 if only the port is set; needs PM_DAEMON_TOKEN"`
	TCPPort    int    `split_words:"true" min:"0" max:"65535" desc:"port on which the daemon also listens, 46573 if only the address is set"`
}

// The values of PM_DAEMON_MODE.
const (
	DaemonDisabled = "disabled"
	DaemonEnabled  = "enabled"
	DaemonNever    = "never"
)

// The defaults of the address on which a daemon listens if one half of it is set.
const (
	defaultBind = "127.0.0.1"
	defaultPort = 46573
)

// minToken is how many bytes a token must have.
const minToken = 16

// complete returns an error unless the variables fit together, and fills in the half of
// the TCP address that is not set.
func (d *Daemon) complete() error {
	if d.Token != "" && len(d.Token) < minToken {
		return fmt.Errorf("PM_DAEMON_TOKEN: want at least %d characters", minToken) // the value is a secret
	}
	if d.TCPBind == "" && d.TCPPort == 0 {
		return nil
	}
	if ip := net.ParseIP(d.TCPBind); d.TCPBind != "" && d.TCPBind != "localhost" && !ip.IsLoopback() {
		return fmt.Errorf("PM_DAEMON_TCP_BIND=%q: want a loopback address such as 127.0.0.1 or ::1", d.TCPBind)
	}
	if d.Token == "" {
		return errors.New(d.tcpVariable() + ": want PM_DAEMON_TOKEN, too: other users can reach a loopback address")
	}
	if d.TCPBind == "" {
		d.TCPBind = defaultBind
	}
	if d.TCPPort == 0 {
		d.TCPPort = defaultPort
	}
	return nil
}

func (d *Daemon) tcpVariable() string {
	if d.TCPBind != "" {
		return "PM_DAEMON_TCP_BIND"
	}
	return "PM_DAEMON_TCP_PORT"
}

// TCP returns the address on which the daemon listens beside its socket, "" for none.
func (d *Daemon) TCP() string {
	if d.TCPPort == 0 {
		return ""
	}
	return net.JoinHostPort(d.TCPBind, strconv.Itoa(d.TCPPort))
}
