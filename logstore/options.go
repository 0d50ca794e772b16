package logstore

import (
	"log/slog"
	"time"

	"github.com/google/uuid"

	"pmcp/logstore/db"
	"pmcp/logstore/mask"
)

// Options configure a Store: where it keeps its log and for how long. The zero value keeps everything in
// memory.
type Options struct {
	// Path is the database file. Open creates it with mode 0600, in a directory that it creates with mode
	// 0700; an existing file of ours is changed to that mode. If Path is a symbolic link of this user, Open
	// follows it. A file that another user owns, or could replace, is not used (StateMemory). If Path is
	// empty, the log is kept in memory only: the newest few MiB of each run of this server, lost when the
	// Store is closed.
	Path string
	// ReadOnly opens an existing file for reading only: Open neither creates, migrates nor repairs the file, and its
	// error wraps fs.ErrNotExist or ErrOlderSchema if there is nothing to read yet. The Store is no server: methods that
	// write must not be called.
	ReadOnly bool
	// Session is the registry id (a UUID) of this server. If empty, Open generates a random one.
	Session string
	// Registry is where the Alive functions of other servers find this server. The Store saves it for them.
	Registry string
	// Alive reports whether the server with the given session is alive. registry is that server's own
	// Registry, or empty if an older version stored the session without a registry. Alive may be called from
	// several goroutines and must not call the Store. If it is nil, all other servers are considered dead.
	Alive func(registry, session string) bool
	// RetentionDays is the age in days at which log is removed. Zero or less means 30.
	RetentionDays int
	// MaxBytes is the total size of the database, its write-ahead log and its reserve above which the
	// oldest log is removed. Zero or less means 100 MB. Less than 1 MB leaves no room for any log.
	MaxBytes int64
	// Mask masks secrets in everything that is stored or shown: lines before they are captured, documents,
	// rows and events. Nil masks nothing.
	Mask *mask.Masker
	// Logger receives reports of storage problems. Nil discards them.
	Logger          *slog.Logger
	checkFileSystem func(path string) error // nil = db.CheckFileSystem; tests replace it
}

const (
	defaultRetentionDays = 30
	defaultMaxBytes      = 100_000_000
)

func (o Options) withDefaults() Options {
	if o.RetentionDays <= 0 {
		o.RetentionDays = defaultRetentionDays
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Session == "" {
		o.Session = uuid.NewString()
	}
	if o.Alive == nil {
		o.Alive = func(string, string) bool { return false }
	}
	if o.checkFileSystem == nil {
		o.checkFileSystem = db.CheckFileSystem
	}
	return o
}

// owner returns the owner to store with this server's sessions.
func (o Options) owner() db.Owner { return db.Owner{UUID: o.Session, Registry: o.Registry} }

func (o Options) retention() time.Duration {
	return time.Duration(o.RetentionDays) * 24 * time.Hour
}
