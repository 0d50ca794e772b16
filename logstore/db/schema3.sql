-- Version 3: in which registry a session is to be looked up, its own server's; servers of one database need not share one.
ALTER TABLE session ADD COLUMN registry TEXT NOT NULL DEFAULT '';  -- '': not known
