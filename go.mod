module pmcp

go 1.26.0

require (
	charm.land/bubbletea/v2 v2.1.1 // screen of pmcp top
	github.com/agnivade/levenshtein v1.2.2 // nearest name in errors
	github.com/bmatcuk/doublestar/v4 v4.10.4 // patterns of watched files and of workspaces
	github.com/charmbracelet/x/ansi v0.11.9 // columns that text takes in a terminal; of bubbletea
	github.com/compose-spec/compose-go/v2 v2.16.2 // env_files
	github.com/creack/pty v1.1.24 // terminals
	github.com/fsnotify/fsnotify v1.10.1 // changes of watched files
	github.com/google/jsonschema-go v0.4.3 // schemas from structs
	github.com/google/uuid v1.6.0 // session ids
	github.com/kelseyhightower/envconfig v1.4.0 // variables
	github.com/klauspost/compress v1.20.3 // zstd, for stored log
	github.com/mark3labs/mcp-go v1.2.1 // MCP types, dispatch; its client in tests
	github.com/mattn/go-sqlite3 v1.14.52 // SQLite
	github.com/modelcontextprotocol/go-sdk v1.8.0 // a foreign client, for tests only
	github.com/shirou/gopsutil/v4 v4.26.10 // figures of the machine; of processes on macOS
	github.com/sirupsen/logrus v1.10.1 // silences the parser of env_files
	github.com/spf13/cobra v1.10.2 // commands of a person, completion for shells
	github.com/tailscale/hujson v0.0.0-20260727124030-b80ff77dac4f // comments in launch.json and tasks.json
	go.uber.org/goleak v1.3.0 // goroutine leaks, for tests only
	go.yaml.in/yaml/v3 v3.0.6 // workspaces of pnpm, services of compose files
	golang.org/x/sys v0.49.0 // pidfd, waitid, subreaper
	golang.org/x/time v0.16.0 // rate limits
	mvdan.cc/sh/v3 v3.14.1 // splits command lines by shell rules
)

require (
	github.com/charmbracelet/colorprofile v0.4.3 // indirect
	github.com/charmbracelet/ultraviolet v0.0.0-20261008173134-6b8d4baf91b4 // indirect
	github.com/charmbracelet/x/term v0.2.2 // indirect
	github.com/charmbracelet/x/termios v0.1.1 // indirect
	github.com/charmbracelet/x/windows v0.2.2 // indirect
	github.com/clipperhouse/displaywidth v0.11.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/ebitengine/purego v0.11.2 // indirect
	github.com/go-ole/go-ole v1.2.6 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/lucasb-eyer/go-colorful v1.4.1 // indirect
	github.com/lufia/plan9stats v0.0.0-20211012122336-39d0f177ccd0 // indirect
	github.com/mattn/go-runewidth v0.0.30 // indirect
	github.com/muesli/cancelreader v0.2.2 // indirect
	github.com/power-devops/perfstat v0.0.0-20260805114148-88456608a4f6 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.2 // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/spf13/cast v1.7.1 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/tklauser/go-sysconf v0.4.0 // indirect
	github.com/tklauser/numcpus v0.12.0 // indirect
	github.com/xo/terminfo v1.0.0 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	github.com/yusufpapurcu/wmi v1.2.4 // indirect
	golang.org/x/oauth2 v0.35.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
