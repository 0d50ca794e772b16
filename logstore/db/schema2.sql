-- Version 2: in which runs a kind of error was seen, at most the last 100 of each kind.
CREATE TABLE fault_run (
  fault TEXT NOT NULL,
  run   INTEGER NOT NULL,
  PRIMARY KEY (fault, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX fault_run_by_run ON fault_run (run);

-- Of those in between nothing is known.
INSERT INTO fault_run SELECT id, first_run FROM fault UNION SELECT id, last_run FROM fault;
