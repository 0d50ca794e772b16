-- Version 6: what an event says, for programs.

ALTER TABLE event ADD COLUMN kind TEXT NOT NULL DEFAULT '';   -- '': not known
ALTER TABLE event ADD COLUMN actor TEXT NOT NULL DEFAULT '';  -- '': it happened by itself
