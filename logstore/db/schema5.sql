-- Version 5: chunks are packed.

-- codec: 0 = chunk_data is as version 1 says; 1 = meta and body are zstd, and meta, before that, is the time of each line since the line before
-- it as varints, then a byte with the flags of each line. sum: in the lowest 32 bits, CRC-32C of id, first_line, min_at, lines, bytes, codec,
-- meta and body; above them the sum of min_at, max_at, streams and l0 to l6, modulo 2^31 - 1. stored: the bytes of meta and body. Both are NULL
-- in chunks that an older version stored and maintenance has not packed yet.
ALTER TABLE chunk ADD COLUMN codec INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chunk ADD COLUMN sum INTEGER;
ALTER TABLE chunk ADD COLUMN stored INTEGER;
ALTER TABLE tail ADD COLUMN sum INTEGER;

-- A bit for each hash of four bytes that follow each other in the text of a chunk: 8,000 bytes, zstd if that is shorter. sum: CRC-32C of the
-- id and bits. Those for three bytes are gone; maintenance builds the new ones.
DROP TABLE chunk_filter;
CREATE TABLE chunk_filter (
  id   INTEGER PRIMARY KEY,
  bits BLOB NOT NULL,
  sum  INTEGER NOT NULL
) STRICT;

-- SQL cannot unpack.
DROP VIEW log;
DROP VIEW log_decoded;
DROP VIEW log_line;
DROP VIEW log_block;
