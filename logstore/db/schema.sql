-- Version 1. Times are Unix nanoseconds. A run's id is its session's id << 16 | a counter; the id of its chunks and tail rows is the
-- run's id << 24 | n, so that one range of keys holds a run.

-- One row for each block of run ids that a server reserved.
CREATE TABLE session (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid    TEXT NOT NULL,
  started INTEGER NOT NULL,
  ended   INTEGER NOT NULL DEFAULT 0  -- 0: lives, or died without a word
) STRICT;

CREATE TABLE process (
  id      INTEGER PRIMARY KEY,
  project TEXT NOT NULL,
  name    TEXT NOT NULL,
  runs    INTEGER NOT NULL DEFAULT 0,     -- highest run number given
  UNIQUE (project, name)
) STRICT;

-- JSON that others own: definitions of processes (kind 1), health (2), groups (3).
CREATE TABLE document (
  kind    INTEGER NOT NULL,
  project TEXT NOT NULL,
  name    TEXT NOT NULL,
  body    BLOB NOT NULL,
  PRIMARY KEY (kind, project, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
  id         INTEGER PRIMARY KEY,
  process    INTEGER NOT NULL,
  number     INTEGER NOT NULL,
  started    INTEGER NOT NULL,
  ended      INTEGER NOT NULL DEFAULT 0,  -- 0: no end is known
  sealed     INTEGER NOT NULL DEFAULT 0,  -- 1: the capture ended, lines and last_at are final
  lines      INTEGER NOT NULL DEFAULT 0,  -- number of the last line
  last_at    INTEGER NOT NULL DEFAULT 0,  -- time of the last line
  gone_lines INTEGER NOT NULL DEFAULT 0,  -- lines 1 to gone_lines were removed by age, size or order
  gone_bytes INTEGER NOT NULL DEFAULT 0,
  info       BLOB                         -- JSON of the caller
) STRICT;
CREATE INDEX run_by_process ON run (process, started);

-- The card of a chunk: what can be asked without reading its text.
CREATE TABLE chunk (
  id         INTEGER PRIMARY KEY,
  first_line INTEGER NOT NULL,
  lines      INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,
  min_at     INTEGER NOT NULL,
  max_at     INTEGER NOT NULL,
  streams    INTEGER NOT NULL,            -- bit set
  l0 INTEGER NOT NULL, l1 INTEGER NOT NULL, l2 INTEGER NOT NULL, l3 INTEGER NOT NULL,
  l4 INTEGER NOT NULL, l5 INTEGER NOT NULL, l6 INTEGER NOT NULL
) STRICT;

-- meta: 8 bytes a line, little endian: (time - min_at) << 8 | partial << 6 | continuation << 5 | level << 2 | stream.
-- body: each line and a newline, UTF-8 without control characters but TAB.
CREATE TABLE chunk_data (
  id   INTEGER PRIMARY KEY,
  meta BLOB NOT NULL,
  body BLOB NOT NULL
) STRICT;

-- A bit for each hash of three bytes that follow each other in the body. A chunk without a row has to be read.
CREATE TABLE chunk_filter (
  id   INTEGER PRIMARY KEY,
  bits BLOB NOT NULL
) STRICT;

-- What is already stored of a chunk that is still open; deleted when the whole chunk is stored.
CREATE TABLE tail (
  id         INTEGER PRIMARY KEY,
  first_line INTEGER NOT NULL,
  lines      INTEGER NOT NULL,
  min_at     INTEGER NOT NULL,
  max_at     INTEGER NOT NULL,
  meta       BLOB NOT NULL,
  body       BLOB NOT NULL
) STRICT;

-- Lines that were captured, or may have been, and are not stored.
CREATE TABLE gap (
  run        INTEGER NOT NULL,
  after_line INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  lines      INTEGER NOT NULL,            -- -1: unknown
  bytes      INTEGER NOT NULL,
  reason     TEXT NOT NULL,
  PRIMARY KEY (run, after_line)
) STRICT, WITHOUT ROWID;

-- One kind of error of one process. id: of project, name and fingerprint.
CREATE TABLE fault (
  id          TEXT PRIMARY KEY,
  project     TEXT NOT NULL,
  name        TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  category    TEXT NOT NULL,
  type        TEXT NOT NULL,
  message     TEXT NOT NULL,
  file        TEXT NOT NULL,
  line        INTEGER NOT NULL,
  col         INTEGER NOT NULL,
  stack       BLOB,                       -- JSON array of lines
  count       INTEGER NOT NULL,
  runs        INTEGER NOT NULL,
  first_seen  INTEGER NOT NULL,
  last_seen   INTEGER NOT NULL,
  first_run   INTEGER NOT NULL,
  last_run    INTEGER NOT NULL,
  run_number  INTEGER NOT NULL,
  first_line  INTEGER NOT NULL,
  last_line   INTEGER NOT NULL,
  resolved    INTEGER NOT NULL,           -- 0: it is not
  note        TEXT NOT NULL,
  regressed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX fault_by_project ON fault (project, last_seen);

-- How often it was seen in each hour since 1970.
CREATE TABLE fault_hour (
  fault TEXT NOT NULL,
  hour  INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (fault, hour)
) STRICT, WITHOUT ROWID;

-- What the process tree of a run used over 10 s that end at at.
CREATE TABLE sample (
  run       INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  cpu       REAL NOT NULL,                -- percent of the machine, mean
  memory    INTEGER NOT NULL,             -- bytes, largest
  processes INTEGER NOT NULL,             -- largest
  PRIMARY KEY (run, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX sample_by_time ON sample (at);

-- What happened to processes by themselves.
CREATE TABLE event (
  id      INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  project TEXT NOT NULL,
  name    TEXT NOT NULL,
  run     INTEGER NOT NULL,
  text    TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_process ON event (project, name, at);

-- For people: SELECT * FROM log WHERE process = 'web' ORDER BY run, line.
CREATE VIEW log_block AS
  SELECT c.id >> 24 AS run, c.first_line, c.min_at, d.meta, d.body FROM chunk c JOIN chunk_data d ON d.id = c.id
  UNION ALL
  SELECT id >> 24, first_line, min_at, meta, body FROM tail;

CREATE VIEW log_line AS
  SELECT b.run, b.first_line + j.key AS line, b.min_at, j.value AS text, hex(substr(b.meta, 8 * j.key + 1, 8)) AS meta
  FROM log_block b, json_each('["' || replace(replace(replace(replace(substr(CAST(b.body AS TEXT), 1, length(CAST(b.body AS TEXT)) - 1),
    '\', '\\'), '"', '\"'), char(9), '\t'), char(10), '","') || '"]') j;

CREATE VIEW log_decoded AS
  SELECT run, line, text,
    16 * (instr('0123456789ABCDEF', substr(meta, 1, 1)) - 1) + instr('0123456789ABCDEF', substr(meta, 2, 1)) - 1 AS flags,
    min_at
      + ((instr('0123456789ABCDEF', substr(meta, 3, 1)) - 1) << 4) + ((instr('0123456789ABCDEF', substr(meta, 4, 1)) - 1) << 0)
      + ((instr('0123456789ABCDEF', substr(meta, 5, 1)) - 1) << 12) + ((instr('0123456789ABCDEF', substr(meta, 6, 1)) - 1) << 8)
      + ((instr('0123456789ABCDEF', substr(meta, 7, 1)) - 1) << 20) + ((instr('0123456789ABCDEF', substr(meta, 8, 1)) - 1) << 16)
      + ((instr('0123456789ABCDEF', substr(meta, 9, 1)) - 1) << 28) + ((instr('0123456789ABCDEF', substr(meta, 10, 1)) - 1) << 24)
      + ((instr('0123456789ABCDEF', substr(meta, 11, 1)) - 1) << 36) + ((instr('0123456789ABCDEF', substr(meta, 12, 1)) - 1) << 32)
      + ((instr('0123456789ABCDEF', substr(meta, 13, 1)) - 1) << 44) + ((instr('0123456789ABCDEF', substr(meta, 14, 1)) - 1) << 40)
      + ((instr('0123456789ABCDEF', substr(meta, 15, 1)) - 1) << 52) + ((instr('0123456789ABCDEF', substr(meta, 16, 1)) - 1) << 48) AS at
  FROM log_line;

CREATE VIEW log AS
  SELECT strftime('%Y-%m-%d %H:%M:%f', l.at / 1e9, 'unixepoch', 'localtime') AS time, p.project, p.name AS process, r.number AS run, l.line,
    CASE l.flags & 3 WHEN 0 THEN 'out' WHEN 1 THEN 'err' ELSE 'mcp' END AS stream,
    CASE l.flags >> 2 & 7 WHEN 1 THEN 'trace' WHEN 2 THEN 'debug' WHEN 3 THEN 'info' WHEN 4 THEN 'warn' WHEN 5 THEN 'error' WHEN 6 THEN 'fatal' ELSE '' END AS level,
    l.text
  FROM log_decoded l JOIN run r ON r.id = l.run JOIN process p ON p.id = r.process;
