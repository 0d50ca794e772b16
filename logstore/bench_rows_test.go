package logstore

import (
	"database/sql"
	"regexp"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"pmcp/logstore/db"
	"pmcp/logstore/line"
)

// rowStore is the baseline of benchmarks: a database with a row for each line.
type rowStore struct{ db *sql.DB }

func openRows(b *testing.B, path string) *rowStore {
	d := &sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		return c.RegisterFunc("regexp", regexpFunc(), true)
	}}
	db := sql.OpenDB(db.NewConnector(d, "file:"+path+"?_journal_mode=WAL&_synchronous=NORMAL&_cache_size=-8000"))
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, at INT, level INT, stream INT, text TEXT)`); err != nil {
		b.Fatal(err)
	}
	return &rowStore{db}
}

// regexpFunc returns the usual implementation of SQL's REGEXP, which compiles each expression once.
func regexpFunc() func(expr, text string) (bool, error) {
	compiled := make(map[string]*regexp.Regexp)
	return func(expr, text string) (bool, error) {
		re := compiled[expr]
		if re == nil {
			var err error
			if re, err = regexp.Compile(expr); err != nil {
				return false, err
			}
			compiled[expr] = re
		}
		return re.MatchString(text), nil
	}
}

// rowSink stores clean lines in a rowStore, 1000 in a transaction.
type rowSink struct {
	b       *testing.B
	db      *sql.DB
	tx      *sql.Tx
	stmt    *sql.Stmt
	n       int
	process int64
	last    [20]int64
}

func (r *rowSink) Line(text []byte, _, _ bool) {
	if r.tx == nil {
		var err error
		if r.tx, err = r.db.Begin(); err != nil {
			r.b.Fatal(err)
		}
		if r.stmt, err = r.tx.Prepare(`INSERT INTO log VALUES (?, ?, ?, ?, ?)`); err != nil {
			r.b.Fatal(err)
		}
	}
	r.last[r.process]++
	if _, err := r.stmt.Exec(r.process<<40|r.last[r.process], time.Now().UnixNano(), int(line.GuessLevel(text, false)), 0, string(text)); err != nil {
		r.b.Fatal(err)
	}
	if r.n++; r.n%1000 == 0 {
		r.commit()
	}
}

func (r *rowSink) commit() {
	if r.tx != nil {
		if err := r.tx.Commit(); err != nil {
			r.b.Fatal(err)
		}
		r.tx = nil
	}
}

func (rs *rowStore) ingest(b *testing.B) {
	sink := &rowSink{b: b, db: rs.db}
	var cleaners [20]line.Cleaner
	for _, r := range benchCorpus().reads {
		sink.process = int64(r.process)
		cleaners[r.process].Feed(r.data, sink)
	}
	sink.commit()
}

// page reads 100 lines between two row ids and returns the id of the last, or 0 at the end.
func (rs *rowStore) page(b *testing.B, after, before int64) (last int64) {
	rows, err := rs.db.Query(`SELECT id, text FROM log WHERE id > ? AND id < ? ORDER BY id LIMIT 100`, after, before)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var text sql.RawBytes
		if err := rows.Scan(&last, &text); err != nil {
			b.Fatal(err)
		}
	}
	if n < 100 {
		return 0
	}
	return last
}
