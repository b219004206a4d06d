-- Pausing topics and groups. A partition has its own mark, because its row is what a flush locks and looks at.

ALTER TABLE laneway.topic ADD COLUMN paused_at timestamptz;
COMMENT ON COLUMN laneway.topic.paused_at IS 'Takes no messages and delivers none until it is resumed; null: it runs.';

ALTER TABLE laneway.partition ADD COLUMN paused_at timestamptz;
COMMENT ON COLUMN laneway.partition.paused_at IS 'Takes no messages: set under its lock when its topic is paused.';

ALTER TABLE laneway.consumer_group ADD COLUMN paused_at timestamptz;
COMMENT ON COLUMN laneway.consumer_group.paused_at IS 'Nothing is delivered to it until it is resumed; null: it runs.';
