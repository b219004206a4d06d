-- When a selection began: what appears or is labelled later is part of it from its first message on, whoever makes the group.
ALTER TABLE laneway.selection ADD COLUMN begun_at timestamptz NOT NULL DEFAULT clock_timestamp();
COMMENT ON COLUMN laneway.selection.begun_at IS 'Topics that changed later begin at their first message.';
