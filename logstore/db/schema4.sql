-- Version 4: labels of projects, and ports.

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
