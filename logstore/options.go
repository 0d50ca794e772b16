package logstore

import (
	"log/slog"
	"time"

	"pmcp/logstore/mask"
)

// Options says where a Store keeps its log and for how long. The zero value keeps everything in memory.
type Options struct {
	// Path is the database file. It is made with mode 0600 in a directory made with mode 0700; one
	// that is there and ours gets that mode. A symbolic link is followed once, when it is opened.
	// Empty means memory only: the newest few MiB of each run of this server can be read, and
	// nothing outlives it.
	Path string
	// Session is the registry id (a UUID) of this server. Empty means a random one.
	Session string
	// Registry is where Alive of other servers finds this one. It is stored for them.
	Registry string
	// Alive tells whether the server with the given session lives; registry is what that server gave
	// as its own, or empty if a version stored it that knew none. It may be called from several
	// goroutines and must not call the Store. Nil means that no other server does.
	Alive func(registry, session string) bool
	// RetentionDays is the age in days at which log is dropped. Zero or less means 30.
	RetentionDays int
	// MaxBytes is the size of the database file above which the oldest log is dropped. Zero or less means 100 MB.
	MaxBytes int64
	// Mask takes secrets out of all that is stored or shown: lines before they are captured,
	// documents, rows and events. Nil takes none.
	Mask *mask.Masker
	// Logger is told what goes wrong with the storage. Nil discards.
	Logger *slog.Logger
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
	if o.Alive == nil {
		o.Alive = func(string, string) bool { return false }
	}
	return o
}

// owner is this server as it is stored.
func (o Options) owner() owner { return owner{o.Session, o.Registry} }

func (o Options) retention() time.Duration {
	return time.Duration(o.RetentionDays) * 24 * time.Hour
}
