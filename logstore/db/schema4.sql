-- Version 4: labels of projects, ports, and packed chunks.

-- The label of a project: a tail of its path, or the path. It is never changed, and never given to another project.
CREATE TABLE project (
  path  TEXT PRIMARY KEY,
  label TEXT NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

-- The port, other than the preferred one, that a variable of a process had last.
CREATE TABLE port (
  project  TEXT NOT NULL,
  name     TEXT NOT NULL,
  variable TEXT NOT NULL,
  port     INTEGER NOT NULL,
  at       INTEGER NOT NULL,              -- when it was chosen last
  PRIMARY KEY (project, name, variable)
) STRICT, WITHOUT ROWID;

-- The ports that a server has reserved. A row counts while its session lives and its run has not ended.
CREATE TABLE port_use (
  session  INTEGER NOT NULL,
  project  TEXT NOT NULL,
  name     TEXT NOT NULL,
  variable TEXT NOT NULL,
  port     INTEGER NOT NULL,
  run      INTEGER NOT NULL DEFAULT 0,    -- 0: no run was started with it yet
  PRIMARY KEY (session, project, name, variable)
) STRICT, WITHOUT ROWID;

-- A small database left statistics that misled the planner of a large one. Nothing collects statistics any more.
DROP TABLE IF EXISTS sqlite_stat1;
DROP TABLE IF EXISTS sqlite_stat4;

-- The health of processes, which nothing reads.
DELETE FROM document WHERE kind = 2;

-- Chunks are packed. codec: 0 = meta and body are as the comments of version 1 say; 1 = both are zstd, and meta, before that, is the time of
-- each line since the line before it as varints, then a byte with the flags of each line. sum: CRC-32C of the row's numbers, meta and body;
-- NULL in rows of before. stored: the bytes of meta and body; 0 in chunks that are not packed yet.
ALTER TABLE chunk_data ADD COLUMN codec INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chunk_data ADD COLUMN sum INTEGER;
ALTER TABLE chunk ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tail ADD COLUMN sum INTEGER;

-- SQL cannot unpack.
DROP VIEW log;
DROP VIEW log_decoded;
DROP VIEW log_line;
DROP VIEW log_block;

-- A bit for each hash of four bytes that follow each other in the text of a chunk: 8,000 bytes, zstd if that is shorter. sum: CRC-32C of the
-- id and bits. Those for three bytes are gone; maintenance builds the new ones, and packs the chunks.
DROP TABLE chunk_filter;
CREATE TABLE chunk_filter (
  id   INTEGER PRIMARY KEY,
  bits BLOB NOT NULL,
  sum  INTEGER NOT NULL
) STRICT;
