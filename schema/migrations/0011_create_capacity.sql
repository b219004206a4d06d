-- What a topic may hold before publishes are refused, segments that go once every group is past them, groups that go when
-- nobody uses them, and the history of all that went.

ALTER TABLE laneway.topic
    ADD COLUMN max_backlog_messages bigint CHECK (max_backlog_messages > 0),
    ADD COLUMN max_backlog_bytes bigint CHECK (max_backlog_bytes > 0),
    ADD COLUMN max_stored_bytes bigint CHECK (max_stored_bytes > 0),
    ADD COLUMN retention_completed_ms bigint CHECK (retention_completed_ms >= 0),
    ADD COLUMN group_expiry_ms bigint CHECK (group_expiry_ms > 0);
COMMENT ON COLUMN laneway.topic.max_backlog_messages IS 'Publishes are refused while the slowest counted group is this many messages behind; null: never.';
COMMENT ON COLUMN laneway.topic.max_backlog_bytes IS 'The same in bytes.';
COMMENT ON COLUMN laneway.topic.max_stored_bytes IS 'Publishes are refused while the topic stores this many bytes; null: never.';
COMMENT ON COLUMN laneway.topic.retention_completed_ms IS 'Segments are dropped this long after every group has committed past them; null keeps them.';
COMMENT ON COLUMN laneway.topic.group_expiry_ms IS 'A group that nobody has used for so long is deleted; null keeps it.';

CREATE TYPE laneway.group_capacity AS ENUM ('counted', 'excluded');

ALTER TABLE laneway.consumer_group
    ADD COLUMN capacity laneway.group_capacity NOT NULL DEFAULT 'counted',
    ADD COLUMN idle_since_at timestamptz,
    ADD COLUMN idle_epochs bigint;
COMMENT ON COLUMN laneway.consumer_group.capacity IS 'Whether what it has not done counts against the limits of its topic.';
COMMENT ON COLUMN laneway.consumer_group.idle_since_at IS 'When retention first saw it without members; null: it had some, or nobody has looked.';
COMMENT ON COLUMN laneway.consumer_group.idle_epochs IS 'The sum of the epochs of its lanes at that time: it grows with every use.';

ALTER TABLE laneway.segment ADD COLUMN completed_at timestamptz;
COMMENT ON COLUMN laneway.segment.completed_at IS 'When retention first saw that every group has committed past all of it; null: not so, or nobody has looked.';

CREATE TABLE laneway.retention_event (
    event_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic_id     bigint NOT NULL REFERENCES laneway.topic ON DELETE CASCADE,
    reason       text COLLATE "C" NOT NULL CHECK (reason IN ('age', 'bytes', 'completed', 'purged', 'inactive')),
    partition    integer,
    from_offset  bigint,
    to_offset    bigint,
    bytes        bigint,
    group_name   text COLLATE "C",
    dropped_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((reason = 'inactive') = (group_name IS NOT NULL)),
    CHECK ((reason = 'inactive') = (partition IS NULL)),
    CHECK ((partition IS NULL) = (from_offset IS NULL) AND (partition IS NULL) = (to_offset IS NULL))
);
COMMENT ON TABLE laneway.retention_event IS 'What retention has dropped, when and why: a segment, or a group that nobody used.';
COMMENT ON COLUMN laneway.retention_event.from_offset IS 'First offset that went; those up to to_offset, not included, went with it.';
CREATE INDEX retention_event_topic_id ON laneway.retention_event (topic_id, event_id);
CREATE INDEX retention_event_dropped_at ON laneway.retention_event (dropped_at);
