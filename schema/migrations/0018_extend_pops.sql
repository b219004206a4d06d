-- Pops know windows: how far the window of a lane was opened for pullers stands in its row, like everything about a pop.

ALTER TABLE laneway.lane ADD COLUMN open_until_offset bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN laneway.lane.open_until_offset IS 'Pullers do not wait for a window below it: it was open for that already.';
