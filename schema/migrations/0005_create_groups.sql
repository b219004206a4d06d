-- Brokers, sessions, groups and their lanes. Who holds what is a row here; a broker only remembers it.

CREATE TABLE laneway.broker (
    broker_id   uuid PRIMARY KEY,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    dead_at     timestamptz
) WITH (fillfactor = 50, vacuum_truncate = off);
COMMENT ON TABLE laneway.broker IS 'A broker for as long as it heartbeats; dead_at is its burial, after which it may do nothing under this id.';

CREATE TABLE laneway.session (
    session_id    uuid PRIMARY KEY,
    broker_id     uuid NOT NULL REFERENCES laneway.broker,
    resume_hash   bytea NOT NULL,
    opened_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE laneway.session IS 'A session that is a member of some group, and the broker that holds its connection.';
COMMENT ON COLUMN laneway.session.resume_hash IS 'SHA-256 of the token that lets its client come back.';
CREATE INDEX session_broker_id ON laneway.session (broker_id);

CREATE TYPE laneway.failure_policy AS ENUM ('dead_letter', 'block', 'skip');

CREATE TABLE laneway.consumer_group (
    group_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic_id         bigint NOT NULL REFERENCES laneway.topic,
    name             text COLLATE "C" NOT NULL CHECK (name ~ '^[a-zA-Z0-9._-]{1,249}$'),
    ack_deadline_ms  bigint NOT NULL CHECK (ack_deadline_ms > 0),
    max_attempts     integer NOT NULL CHECK (max_attempts > 0),
    backoff_base_ms  bigint NOT NULL CHECK (backoff_base_ms >= 0),
    backoff_factor   double precision NOT NULL CHECK (backoff_factor >= 1),
    backoff_cap_ms   bigint NOT NULL CHECK (backoff_cap_ms >= 0),
    on_failure       laneway.failure_policy NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (topic_id, name)
);
COMMENT ON TABLE laneway.consumer_group IS 'Consumers that share one set of committed offsets on a topic.';

CREATE TABLE laneway.member (
    group_id    bigint NOT NULL REFERENCES laneway.consumer_group ON DELETE CASCADE,
    session_id  uuid NOT NULL REFERENCES laneway.session ON DELETE CASCADE,
    terms       text NOT NULL,
    joined_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (group_id, session_id)
);
COMMENT ON TABLE laneway.member IS 'A session that takes part in a group.';
COMMENT ON COLUMN laneway.member.terms IS 'What it subscribed with (number, credit, batch limits) as JSON: a broker that it resumes on needs it.';
CREATE INDEX member_session_id ON laneway.member (session_id);

-- Invariant: locked by every effect of its holder, updated only when it changes hands. The lock, with the epoch in the
-- WHERE, is the fence. Lock order: group, then lanes, then partitions, each by id.
CREATE TABLE laneway.lane (
    group_id        bigint NOT NULL REFERENCES laneway.consumer_group ON DELETE CASCADE,
    partition_id    bigint NOT NULL REFERENCES laneway.partition ON DELETE CASCADE,
    first_offset    bigint NOT NULL CHECK (first_offset >= 0),
    epoch           bigint NOT NULL DEFAULT 0,
    session_id      uuid,
    broker_id       uuid,
    wanted_session  uuid,
    avoided_session uuid,
    drain_until_at  timestamptz,
    suspect_until   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, partition_id),
    CHECK ((session_id IS NULL) = (broker_id IS NULL))
) WITH (fillfactor = 50, vacuum_truncate = off);
COMMENT ON TABLE laneway.lane IS 'One partition as delivered to one group: who holds it, under which epoch, and who is to have it next.';
COMMENT ON COLUMN laneway.lane.first_offset IS 'Where the group began: the committed offset until there is a commit.';
COMMENT ON COLUMN laneway.lane.wanted_session IS 'Who is to have it: written by the assignment, acted upon by the brokers of holder and wanted.';
COMMENT ON COLUMN laneway.lane.avoided_session IS 'Who has missed a deadline on it last: gets it back only if nobody else can take it.';
COMMENT ON COLUMN laneway.lane.drain_until_at IS 'Until when the holder may finish, once another session is wanted.';
COMMENT ON COLUMN laneway.lane.suspect_until IS 'Below this offset one message at a time is in flight, because a consumer has died in this range.';
CREATE INDEX lane_session_id ON laneway.lane (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX lane_partition_id ON laneway.lane (partition_id);

-- Why inserts, and not an update of the lane: docs/adr/0002-lane-commits.md.
CREATE TABLE laneway.lane_commit (
    group_id          bigint NOT NULL,
    partition_id      bigint NOT NULL,
    epoch             bigint NOT NULL,
    number            bigint NOT NULL,
    committed_offset  bigint NOT NULL CHECK (committed_offset >= 0),
    acked             int8multirange NOT NULL DEFAULT '{}',
    PRIMARY KEY (group_id, partition_id, epoch, number)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.lane_commit IS 'What a group has done of a partition; the newest by epoch and number counts.';
COMMENT ON COLUMN laneway.lane_commit.acked IS 'Acknowledged beyond committed_offset.';

CREATE TABLE laneway.attempt (
    group_id      bigint NOT NULL REFERENCES laneway.consumer_group ON DELETE CASCADE,
    partition_id  bigint NOT NULL,
    "offset"      bigint NOT NULL,
    attempts      integer NOT NULL CHECK (attempts > 0),
    reason        text COLLATE "C" NOT NULL,
    failed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_at      timestamptz NOT NULL,
    PRIMARY KEY (group_id, partition_id, "offset")
);
COMMENT ON TABLE laneway.attempt IS 'A message that has failed in a group and is not done yet: how often, why last, and not again before when.';

CREATE TABLE laneway.dead_letter (
    dead_letter_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic_id            bigint NOT NULL REFERENCES laneway.topic,
    group_name          text COLLATE "C" NOT NULL,
    partition_id        bigint NOT NULL REFERENCES laneway.partition,
    "offset"            bigint NOT NULL,
    attempts            integer NOT NULL,
    reason              text COLLATE "C" NOT NULL,
    dead_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at        timestamptz NOT NULL,
    trace_id            uuid NOT NULL,
    cause_partition_id  bigint,
    cause_offset        bigint,
    key                 bytea,
    transaction_id      text COLLATE "C",
    headers             text COLLATE "C",
    content_type        text COLLATE "C",
    payload             bytea NOT NULL,
    producer            text COLLATE "C",
    UNIQUE (partition_id, "offset", group_name)
);
COMMENT ON TABLE laneway.dead_letter IS 'A message that a group has given up, whole, so that it outlives retention; written with the commit that moves past it.';
CREATE INDEX dead_letter_topic_id ON laneway.dead_letter (topic_id, dead_letter_id);

ALTER TABLE laneway.topic ADD COLUMN deleted_at timestamptz;
ALTER TABLE laneway.topic DROP CONSTRAINT topic_name_key;
CREATE UNIQUE INDEX topic_name ON laneway.topic (name) WHERE deleted_at IS NULL;
COMMENT ON COLUMN laneway.topic.deleted_at IS 'Its name is free again; what it holds is dropped by a chore, table by table.';
ALTER TABLE laneway.partition ADD COLUMN deleted_at timestamptz;
COMMENT ON COLUMN laneway.partition.deleted_at IS 'Takes no more messages: set under its lock when its topic is deleted.';
