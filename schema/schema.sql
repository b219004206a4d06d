-- Today's shape of the schema, to be read. A database gets there by migrations/, and a test proves that both are the same.
-- Not here: the tables that hold messages and trace blocks. They are made lazily, from templates/, below their parents.
-- Everything lives in the schema `laneway`, so that the bus can share a database with the tables a team already has.

CREATE SCHEMA laneway;

-- Which migrations were applied. Belongs to the migration runner (migrations/bootstrap.sql).
CREATE TABLE laneway.migration (
    version     integer PRIMARY KEY,
    name        text NOT NULL,
    sha256      bytea NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Topics and their partitions ------------------------------------------------------------------------------------------

CREATE TABLE laneway.topic (
    topic_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name               text COLLATE "C" NOT NULL CHECK (name ~ '^[a-zA-Z0-9._-]{1,249}$'),
    payload_bytes_max  integer NOT NULL CHECK (payload_bytes_max > 0),
    segment_messages   integer NOT NULL CHECK (segment_messages > 0),
    retention_age_ms   bigint CHECK (retention_age_ms > 0),
    retention_bytes    bigint CHECK (retention_bytes > 0),
    dedup_window_ms    bigint NOT NULL CHECK (dedup_window_ms > 0),
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at         timestamptz,
    delivery_times     boolean NOT NULL DEFAULT true,
    max_backlog_messages    bigint CHECK (max_backlog_messages > 0),
    max_backlog_bytes       bigint CHECK (max_backlog_bytes > 0),
    max_stored_bytes        bigint CHECK (max_stored_bytes > 0),
    retention_completed_ms  bigint CHECK (retention_completed_ms >= 0),
    group_expiry_ms         bigint CHECK (group_expiry_ms > 0),
    paused_at               timestamptz,
    encryption              text COLLATE "C" NOT NULL DEFAULT 'none' CHECK (encryption IN ('none', 'aes_256_gcm')),
    labels                  jsonb NOT NULL DEFAULT '{}',
    changed_at              timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX topic_name ON laneway.topic (name) WHERE deleted_at IS NULL;
COMMENT ON TABLE laneway.topic IS 'A named stream of messages, split into partitions.';
COMMENT ON COLUMN laneway.topic.deleted_at IS 'Its name is free again; what it holds is dropped by a chore, table by table.';
COMMENT ON COLUMN laneway.topic.retention_age_ms IS 'Whole segments older than this are dropped; null keeps them for ever.';
COMMENT ON COLUMN laneway.topic.retention_bytes IS 'The oldest segments are dropped while the topic stores more than this; null keeps them.';
COMMENT ON COLUMN laneway.topic.delivery_times IS 'Whether it is kept when its messages were delivered and done.';
COMMENT ON COLUMN laneway.topic.max_backlog_messages IS 'Publishes are refused while the slowest counted group is this many messages behind; null: never.';
COMMENT ON COLUMN laneway.topic.max_backlog_bytes IS 'The same in bytes.';
COMMENT ON COLUMN laneway.topic.max_stored_bytes IS 'Publishes are refused while the topic stores this many bytes; null: never.';
COMMENT ON COLUMN laneway.topic.retention_completed_ms IS 'Segments are dropped this long after every group has committed past them; null keeps them.';
COMMENT ON COLUMN laneway.topic.group_expiry_ms IS 'A group that nobody has used for so long is deleted; null keeps it.';
COMMENT ON COLUMN laneway.topic.paused_at IS 'Takes no messages and delivers none until it is resumed; null: it runs.';
COMMENT ON COLUMN laneway.topic.labels IS 'Words by name, such as namespace and task.';
COMMENT ON COLUMN laneway.topic.changed_at IS 'When it was made, labelled or deleted: brokers that serve selections read what is new.';
CREATE INDEX topic_changed_at ON laneway.topic (changed_at);
COMMENT ON COLUMN laneway.topic.encryption IS 'How the payloads of new messages are sealed; stored ones say themselves how they were.';

-- Invariant: a flush locks this row and never updates it. Only retention moves its start, once per dropped segment, and an
-- operator who purges, pauses or encrypts, so that a foreign snapshot cannot pile up versions of it.
CREATE TABLE laneway.partition (
    partition_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic_id           bigint NOT NULL REFERENCES laneway.topic,
    number             integer NOT NULL CHECK (number >= 0),
    start_offset       bigint NOT NULL DEFAULT 0 CHECK (start_offset >= 0),
    start_bytes_total  bigint NOT NULL DEFAULT 0 CHECK (start_bytes_total >= 0),
    deleted_at         timestamptz,
    paused_at          timestamptz,
    encrypted_at       timestamptz,
    UNIQUE (topic_id, number)
) WITH (fillfactor = 50, vacuum_truncate = off);
COMMENT ON TABLE laneway.partition IS 'An ordered part of a topic: the unit of order and of locking.';
COMMENT ON COLUMN laneway.partition.deleted_at IS 'Takes no more messages: set under its lock when its topic is deleted.';
COMMENT ON COLUMN laneway.partition.paused_at IS 'Takes no messages: set under its lock when its topic is paused.';
COMMENT ON COLUMN laneway.partition.encrypted_at IS 'Takes no new message that is not sealed: set under its lock when its topic is encrypted.';
COMMENT ON COLUMN laneway.partition.start_bytes_total IS 'Bytes of the messages below start_offset: what retention has dropped.';

-- What payloads of encrypted topics are sealed with -----------------------------------------------------------------------
-- Invariant: rows are locked by whoever writes what they have sealed, until commit; a closed one is never opened again.

CREATE TABLE laneway.data_key (
    data_key_id       uuid PRIMARY KEY,
    topic_id          bigint NOT NULL,
    partition_id      bigint NOT NULL REFERENCES laneway.partition ON DELETE CASCADE,
    place             text COLLATE "C" NOT NULL CHECK (place IN ('message', 'copy')),
    broker_id         uuid,
    ring_key          text COLLATE "C" NOT NULL,
    ring_fingerprint  bytea NOT NULL CHECK (octet_length(ring_fingerprint) = 8),
    salt              bytea NOT NULL CHECK (octet_length(salt) = 32),
    segment_end       bigint,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at         timestamptz,
    end_offset        bigint,
    moved_offset      bigint NOT NULL DEFAULT 0
);
CREATE INDEX data_key_partition_id ON laneway.data_key (partition_id);
CREATE INDEX data_key_open ON laneway.data_key (broker_id) WHERE closed_at IS NULL;
COMMENT ON TABLE laneway.data_key IS 'A key that has sealed payloads of one partition: what it is derived from, beside the secret of the key ring.';
COMMENT ON COLUMN laneway.data_key.place IS 'message: among the messages, or waiting to get there. copy: aside, such as a dead letter.';
COMMENT ON COLUMN laneway.data_key.broker_id IS 'The life of a broker that seals with it; null: it was made for one transaction.';
COMMENT ON COLUMN laneway.data_key.ring_key IS 'What the key of the ring was called; ring_fingerprint says which it is.';
COMMENT ON COLUMN laneway.data_key.segment_end IS 'Where the segment ends that was written when it was made; from there on its broker makes another one.';
COMMENT ON COLUMN laneway.data_key.closed_at IS 'Nothing is written any more that it has sealed.';
COMMENT ON COLUMN laneway.data_key.end_offset IS 'Once closed: no message that was published under it stands at or after this offset.';
COMMENT ON COLUMN laneway.data_key.moved_offset IS 'No message that waited for its time and was sealed with it stands at or after this offset.';

-- Messages, the catalogue of the segments that hold them, and the heads that number them ---------------------------------

-- Invariant: only inserts go through this parent. Reads name one segment table, found in the catalogue.
-- Below it: one table per partition (message_p<partition_id>, LIST), below that one per segment
-- (message_s<segment_id>, RANGE by offset, with the primary key ("offset")).
CREATE TABLE laneway.message (
    partition_id        bigint NOT NULL,
    "offset"            bigint NOT NULL,
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
    ttl_ms              bigint,
    data_key_id         uuid
) PARTITION BY LIST (partition_id);
COMMENT ON COLUMN laneway.message.headers IS 'A JSON object of strings, kept as its text.';
COMMENT ON COLUMN laneway.message.producer IS 'The authenticated subject; null until there is authentication.';
COMMENT ON COLUMN laneway.message.ttl_ms IS 'How long after its publish it is worth delivering; null: for ever.';
COMMENT ON COLUMN laneway.message.data_key_id IS 'What has sealed the payload; null: it is as it was published.';

CREATE TYPE laneway.segment_state AS ENUM ('attached', 'retired', 'detached');

CREATE TABLE laneway.segment (
    segment_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id        bigint NOT NULL REFERENCES laneway.partition,
    first_offset        bigint NOT NULL CHECK (first_offset >= 0),
    end_offset          bigint NOT NULL,
    state               laneway.segment_state NOT NULL DEFAULT 'attached',
    bytes               bigint,
    end_bytes_total     bigint,
    first_published_at  timestamptz,
    last_published_at   timestamptz,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    sealed_at           timestamptz,
    frozen_at           timestamptz,
    completed_at        timestamptz,
    CHECK (end_offset > first_offset),
    UNIQUE (partition_id, first_offset)
);
COMMENT ON TABLE laneway.segment IS 'Which table holds which offsets of a partition, from when to when, and how large it is.';
COMMENT ON COLUMN laneway.segment.state IS 'attached: takes inserts. retired: below start_offset, to be detached. detached: to be dropped.';
COMMENT ON COLUMN laneway.segment.end_bytes_total IS 'Once sealed: bytes of all messages ever published below end_offset.';
COMMENT ON COLUMN laneway.segment.sealed_at IS 'When it was seen full: its bytes and time range are final from here on.';
COMMENT ON COLUMN laneway.segment.completed_at IS 'When retention first saw that every group has committed past all of it; null: not so, or nobody has looked.';

-- Each flush inserts one head per partition it wrote; the newest wins, older ones are thinned and serve as time index.
-- Why insert-only: docs/adr/0001-insert-only-heads.md.
CREATE TABLE laneway.head (
    partition_id  bigint NOT NULL,
    published_at  timestamptz NOT NULL,
    next_offset   bigint NOT NULL,
    bytes_total   bigint NOT NULL,
    PRIMARY KEY (partition_id, published_at, next_offset)
) WITH (vacuum_truncate = off);
COMMENT ON COLUMN laneway.head.bytes_total IS 'Bytes of all messages ever published to the partition, up to next_offset.';

-- What has been published already, for as long as the window of a topic remembers it -------------------------------------

CREATE TABLE laneway.producer_run (
    partition_id    bigint NOT NULL,
    producer_id     uuid NOT NULL,
    first_sequence  bigint NOT NULL,
    last_sequence   bigint NOT NULL,
    first_offset    bigint NOT NULL,
    published_at    timestamptz NOT NULL,
    PRIMARY KEY (partition_id, producer_id, last_sequence)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.producer_run IS 'A run of messages of one producer, numbered without a gap and stored without a gap.';

CREATE TABLE laneway.transaction_seen (
    partition_id    bigint NOT NULL,
    transaction_id  text COLLATE "C" NOT NULL,
    "offset"        bigint NOT NULL,
    published_at    timestamptz NOT NULL,
    PRIMARY KEY (partition_id, transaction_id, "offset")
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.transaction_seen IS 'Transaction ids and the message that each of them named first within the window.';
COMMENT ON COLUMN laneway.transaction_seen."offset" IS 'Where the message stands; below 0: it is scheduled, and this is its schedule_id, negated.';
CREATE INDEX transaction_seen_published_at ON laneway.transaction_seen (published_at);

-- The trace index: which flush holds messages of which trace -------------------------------------------------------------
-- Why blocks under one GIN index, and not an entry per message in every segment: docs/adr/0003-trace-index.md.

-- One row per partition and flush. Below it: one table per cut of time (trace_block_c<cut_id>), with a GIN index on traces,
-- so that what retention has left behind goes by dropping tables.
CREATE TABLE laneway.trace_block (
    partition_id  bigint NOT NULL,
    first_offset  bigint NOT NULL,
    messages      integer NOT NULL,
    published_at  timestamptz NOT NULL,
    traces        bigint[] NOT NULL
) PARTITION BY RANGE (published_at);
-- Long arrays go out of line as they are: compressing random numbers costs time and saves nothing.
ALTER TABLE laneway.trace_block ALTER COLUMN traces SET STORAGE EXTERNAL;
COMMENT ON COLUMN laneway.trace_block.traces IS 'The first 64 bits of each trace id in the block, once each.';

CREATE TABLE laneway.trace_cut (
    cut_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_at     timestamptz NOT NULL UNIQUE,
    to_at       timestamptz NOT NULL CHECK (to_at > from_at),
    closed_at   timestamptz,
    checked_at  timestamptz
);
COMMENT ON TABLE laneway.trace_cut IS 'The catalogue of the cuts: trace_block_c<cut_id> holds the blocks of [from_at, to_at).';
COMMENT ON COLUMN laneway.trace_cut.closed_at IS 'When it was frozen: it takes no more blocks.';
COMMENT ON COLUMN laneway.trace_cut.checked_at IS 'When it was last seen how many of its blocks still have messages.';

-- Brokers, sessions, groups and their lanes: who holds what is a row here; a broker only remembers it --------------------

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
    opened_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    away_until_at timestamptz
);
COMMENT ON TABLE laneway.session IS 'A session that is a member of some group, and the broker that holds its connection.';
COMMENT ON COLUMN laneway.session.resume_hash IS 'SHA-256 of the token that lets its client come back.';
COMMENT ON COLUMN laneway.session.away_until_at IS 'Its connection is lost, and its client may come back until then: it keeps its lanes and gets no others.';
CREATE INDEX session_broker_id ON laneway.session (broker_id);

CREATE TYPE laneway.failure_policy AS ENUM ('dead_letter', 'block', 'skip', 'park');
CREATE TYPE laneway.group_capacity AS ENUM ('counted', 'excluded');

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
    capacity         laneway.group_capacity NOT NULL DEFAULT 'counted',
    idle_since_at    timestamptz,
    idle_epochs      bigint,
    pulled_at        timestamptz,
    paused_at        timestamptz,
    delay_ms         bigint NOT NULL DEFAULT 0 CHECK (delay_ms >= 0),
    window_ms        bigint NOT NULL DEFAULT 0 CHECK (window_ms >= 0),
    window_max_ms    bigint NOT NULL DEFAULT 0 CHECK (window_max_ms >= 0),
    max_age_ms       bigint NOT NULL DEFAULT 0 CHECK (max_age_ms >= 0),
    on_expiry        text COLLATE "C" NOT NULL DEFAULT 'evict' CHECK (on_expiry IN ('evict', 'dead_letter')),
    ordering         text COLLATE "C" NOT NULL DEFAULT 'partition' CHECK (ordering IN ('partition', 'key')),
    UNIQUE (topic_id, name)
);
COMMENT ON TABLE laneway.consumer_group IS 'Consumers that share one set of committed offsets on a topic.';
COMMENT ON COLUMN laneway.consumer_group.capacity IS 'Whether what it has not done counts against the limits of its topic.';
COMMENT ON COLUMN laneway.consumer_group.idle_since_at IS 'When retention first saw it without members; null: it had some, or nobody has looked.';
COMMENT ON COLUMN laneway.consumer_group.idle_epochs IS 'The sum of the epochs of its lanes at that time: it grows with every use.';
COMMENT ON COLUMN laneway.consumer_group.pulled_at IS 'When somebody has pulled last, roughly: pullers are one member of the group for a while after it.';
COMMENT ON COLUMN laneway.consumer_group.paused_at IS 'Nothing is delivered to it until it is resumed; null: it runs.';
COMMENT ON COLUMN laneway.consumer_group.delay_ms IS 'Messages are delivered when they are at least so old.';
COMMENT ON COLUMN laneway.consumer_group.window_ms IS 'A partition is delivered when it has been quiet for so long; 0: at once.';
COMMENT ON COLUMN laneway.consumer_group.window_max_ms IS 'No message waits longer for that; 0: ten times window_ms.';
COMMENT ON COLUMN laneway.consumer_group.max_age_ms IS 'Older messages are not delivered; 0: whatever their age.';
COMMENT ON COLUMN laneway.consumer_group.on_expiry IS 'What becomes of messages that are too old for the group or for themselves.';
COMMENT ON COLUMN laneway.consumer_group.ordering IS 'What keeps its order: all messages of a partition, or those of each key.';

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

CREATE TABLE laneway.selection (
    session_id  uuid NOT NULL REFERENCES laneway.session ON DELETE CASCADE,
    number      bigint NOT NULL,
    terms       text NOT NULL,
    begun_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session_id, number)
);
COMMENT ON TABLE laneway.selection IS 'A subscription of a session that selects its topics.';
COMMENT ON COLUMN laneway.selection.terms IS 'What it selects and subscribes with as JSON: a broker that it resumes on needs it.';
COMMENT ON COLUMN laneway.selection.begun_at IS 'Topics that changed later begin at their first message.';

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
    popped_at       timestamptz,
    popped_until_at timestamptz,
    popped_end_offset bigint,
    open_until_offset bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, partition_id),
    CHECK ((session_id IS NULL) = (broker_id IS NULL)),
    CONSTRAINT lane_popped CHECK (
        (popped_at IS NULL) = (popped_until_at IS NULL) AND (popped_at IS NULL) = (popped_end_offset IS NULL)
    )
) WITH (fillfactor = 50, vacuum_truncate = off);
COMMENT ON TABLE laneway.lane IS 'One partition as delivered to one group: who holds it, under which epoch, and who is to have it next.';
COMMENT ON COLUMN laneway.lane.first_offset IS 'Where the group began: the committed offset until there is a commit.';
COMMENT ON COLUMN laneway.lane.wanted_session IS 'Who is to have it: written by the assignment, acted upon by the brokers of holder and wanted.';
COMMENT ON COLUMN laneway.lane.avoided_session IS 'Who has missed a deadline on it last: gets it back only if nobody else can take it.';
COMMENT ON COLUMN laneway.lane.drain_until_at IS 'Until when the holder may finish, once another session is wanted.';
COMMENT ON COLUMN laneway.lane.suspect_until IS 'Below this offset one message at a time is in flight, because a consumer has died in this range.';
COMMENT ON COLUMN laneway.lane.popped_at IS 'Since when a puller has it, under the epoch of the row; null: none has.';
COMMENT ON COLUMN laneway.lane.popped_until_at IS 'Until when the puller may acknowledge; from then on anybody may free it.';
COMMENT ON COLUMN laneway.lane.popped_end_offset IS 'What the puller was given ends here.';
COMMENT ON COLUMN laneway.lane.open_until_offset IS 'Pullers do not wait for a window below it: it was open for that already.';
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
    data_key_id         uuid,
    UNIQUE (partition_id, "offset", group_name)
);
COMMENT ON TABLE laneway.dead_letter IS 'A message that a group has given up, whole, so that it outlives retention; written with the commit that moves past it.';
COMMENT ON COLUMN laneway.dead_letter.data_key_id IS 'What has sealed the payload; null: it is as it was published.';
CREATE INDEX dead_letter_topic_id ON laneway.dead_letter (topic_id, dead_letter_id);
CREATE INDEX dead_letter_data_key_id ON laneway.dead_letter (data_key_id) WHERE data_key_id IS NOT NULL;

-- Written by the holder of the lane under its fence, released by operators under the lock of the lane's row.
CREATE TABLE laneway.parked_key (
    parked_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id       bigint NOT NULL,
    partition_id   bigint NOT NULL,
    parked_offset  bigint NOT NULL CHECK (parked_offset >= 0),
    key            bytea,
    state          text COLLATE "C" NOT NULL CHECK (state IN ('parked', 'released')),
    messages       bigint NOT NULL CHECK (messages >= 0),
    parked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (group_id, partition_id, parked_offset),
    FOREIGN KEY (group_id, partition_id) REFERENCES laneway.lane ON DELETE CASCADE
);
COMMENT ON TABLE laneway.parked_key IS 'A key of a lane whose messages are not delivered: one has failed for good, and the others stand behind it.';
COMMENT ON COLUMN laneway.parked_key.parked_offset IS 'The message that parked it: its name within the lane, also if it has no key.';
COMMENT ON COLUMN laneway.parked_key.state IS 'released: its messages are delivered again, in order; the row goes when none is left.';
COMMENT ON COLUMN laneway.parked_key.messages IS 'How many rows of laneway.parked_message it has.';

CREATE TABLE laneway.parked_message (
    group_id            bigint NOT NULL,
    partition_id        bigint NOT NULL,
    "offset"            bigint NOT NULL CHECK ("offset" >= 0),
    parked_offset       bigint NOT NULL,
    attempts            integer NOT NULL CHECK (attempts >= 0),
    reason              text COLLATE "C" NOT NULL,
    retry_at            timestamptz,
    parked_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
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
    data_key_id         uuid,
    PRIMARY KEY (group_id, partition_id, "offset"),
    FOREIGN KEY (group_id, partition_id, parked_offset)
        REFERENCES laneway.parked_key (group_id, partition_id, parked_offset) ON DELETE CASCADE
);
COMMENT ON TABLE laneway.parked_message IS 'A message of a parked key, whole, so that the lane and retention move on; written with the commit that moves past it.';
COMMENT ON COLUMN laneway.parked_message.attempts IS 'How often it has failed since it was released, or before it was parked; 0: it only stands behind another.';
COMMENT ON COLUMN laneway.parked_message.retry_at IS 'Not delivered again before, once it is released; null: at once.';
COMMENT ON COLUMN laneway.parked_message.data_key_id IS 'What has sealed the payload; null: it is as it was published.';
CREATE INDEX parked_message_line ON laneway.parked_message (group_id, partition_id, parked_offset, "offset");
CREATE INDEX parked_message_failed ON laneway.parked_message (group_id, partition_id, parked_offset, attempts DESC, "offset")
    WHERE attempts > 0;
CREATE INDEX parked_message_data_key_id ON laneway.parked_message (data_key_id) WHERE data_key_id IS NOT NULL;

-- Steps of pipelines -----------------------------------------------------------------------------------------------------
-- Why acks of steps are rows beside the commits of their lane: docs/adr/0005-steps.md.

CREATE TABLE laneway.step (
    step_id     uuid PRIMARY KEY,
    digest      bytea NOT NULL,
    partitions  integer[] NOT NULL,
    offsets     bigint[] NOT NULL,
    done_at     timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.step IS 'A step that is done, for as long as its client may ask again: what it published and where.';
COMMENT ON COLUMN laneway.step.digest IS 'SHA-256 of what the step did: the same id with other content is refused.';
COMMENT ON COLUMN laneway.step.partitions IS 'The number of the partition of each message, in the order of the step.';
COMMENT ON COLUMN laneway.step.offsets IS 'The offset of each message there.';
CREATE INDEX step_done_at ON laneway.step (done_at);

CREATE TABLE laneway.step_ack (
    group_id      bigint NOT NULL,
    partition_id  bigint NOT NULL,
    epoch         bigint NOT NULL,
    from_offset   bigint NOT NULL CHECK (from_offset >= 0),
    to_offset     bigint NOT NULL CHECK (to_offset > from_offset),
    acked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (group_id, partition_id, epoch, from_offset, to_offset)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.step_ack IS 'What steps have acknowledged of a lane; counts beside its newest commit unless that is of a later epoch.';
CREATE INDEX step_ack_acked_at ON laneway.step_ack (acked_at);

-- What traces are read from ----------------------------------------------------------------------------------------------

-- Insert-only, a row per range of messages that were delivered together and done together, never a row per message. No index
-- by time: retention walks the table page by page (docs/adr/0006-delivery-times.md).
CREATE TABLE laneway.lane_time (
    group_id      bigint NOT NULL,
    partition_id  bigint NOT NULL,
    first_offset  bigint NOT NULL CHECK (first_offset >= 0),
    end_offset    bigint NOT NULL CHECK (end_offset > first_offset),
    delivered_at  timestamptz NOT NULL,
    acked_at      timestamptz NOT NULL
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.lane_time IS 'When a range of a lane was delivered last, and when it was done; on the database clock, lost with a crash.';
CREATE INDEX lane_time_place ON laneway.lane_time (group_id, partition_id, first_offset);

-- Beside laneway.attempt, which knows only the last failure of what is not done yet.
CREATE TABLE laneway.failure (
    group_id      bigint NOT NULL,
    partition_id  bigint NOT NULL,
    "offset"      bigint NOT NULL CHECK ("offset" >= 0),
    attempt       integer NOT NULL CHECK (attempt >= 0),
    outcome       text COLLATE "C" NOT NULL CHECK (outcome IN ('retry', 'dead_letter', 'skip', 'evicted', 'park', 'drop')),
    reason        text COLLATE "C" NOT NULL,
    delivered_at  timestamptz,
    failed_at     timestamptz NOT NULL,
    end_offset    bigint,
    CONSTRAINT failure_range_check CHECK (end_offset > "offset")
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.failure IS 'An attempt at a message that has failed, and what followed: it comes again, or the group has given it up.';
COMMENT ON COLUMN laneway.failure.end_offset IS 'All messages up to here, not included, have expired or were parked together; null: one attempt at one message.';
CREATE INDEX failure_place ON laneway.failure (group_id, partition_id, "offset", attempt);
CREATE INDEX failure_range ON laneway.failure (group_id, partition_id, "offset") WHERE end_offset IS NOT NULL;

CREATE TABLE laneway.trace_link (
    linked_trace_id  uuid NOT NULL,
    trace_id         uuid NOT NULL,
    partition_id     bigint NOT NULL,
    "offset"         bigint NOT NULL,
    PRIMARY KEY (linked_trace_id, trace_id, partition_id, "offset")
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.trace_link IS 'A message of a trace has named another trace.';
CREATE INDEX trace_link_trace_id ON laneway.trace_link (trace_id);
CREATE INDEX trace_link_partition_id ON laneway.trace_link (partition_id, "offset");

-- Messages that wait for their time ----------------------------------------------------------------------------------------

-- Invariant: whoever inserts, moves or takes a row holds the lock of its partition: ids rise in the order of commits, and a
-- row that is seen under the lock is there (docs/adr/0008-schedules.md).
CREATE TABLE laneway.schedule (
    schedule_id         bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    topic_id            bigint NOT NULL,
    partition_id        bigint NOT NULL,
    due_at              timestamptz NOT NULL,
    scheduled_at        timestamptz NOT NULL,
    trace_id            uuid NOT NULL,
    cause_partition_id  bigint,
    cause_offset        bigint,
    key                 bytea,
    transaction_id      text COLLATE "C",
    headers             text COLLATE "C",
    content_type        text COLLATE "C",
    payload             bytea NOT NULL,
    producer            text COLLATE "C",
    links               uuid[] NOT NULL DEFAULT '{}',
    ttl_ms              bigint,
    data_key_id         uuid
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE laneway.schedule IS 'A message that waits for its time: appended to its partition when it is due, and gone from here with that.';
COMMENT ON COLUMN laneway.schedule.due_at IS 'When it is appended, on the database clock; never before it was scheduled.';
COMMENT ON COLUMN laneway.schedule.ttl_ms IS 'How long after it was appended it is worth delivering; null: for ever.';
COMMENT ON COLUMN laneway.schedule.data_key_id IS 'What has sealed the payload; null: it is as it was published.';
CREATE INDEX schedule_due_at ON laneway.schedule (due_at, schedule_id);
CREATE INDEX schedule_partition_id ON laneway.schedule (partition_id, due_at, schedule_id);
CREATE INDEX schedule_topic_id ON laneway.schedule (topic_id, schedule_id);
CREATE INDEX schedule_data_key_id ON laneway.schedule (data_key_id) WHERE data_key_id IS NOT NULL;

CREATE TABLE laneway.schedule_seen (
    partition_id  bigint NOT NULL,
    producer_id   uuid NOT NULL,
    sequence      bigint NOT NULL,
    schedule_id   bigint NOT NULL,
    scheduled_at  timestamptz NOT NULL,
    PRIMARY KEY (partition_id, producer_id, sequence)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.schedule_seen IS 'What a producer has scheduled under which number, for as long as the window remembers it.';
CREATE INDEX schedule_seen_scheduled_at ON laneway.schedule_seen (scheduled_at);

-- Why inserts, and not a counter in a row: docs/adr/0001-insert-only-heads.md.
CREATE TABLE laneway.schedule_total (
    partition_id  bigint NOT NULL REFERENCES laneway.partition ON DELETE CASCADE,
    number        bigint NOT NULL,
    scheduled     bigint NOT NULL CHECK (scheduled >= 0),
    PRIMARY KEY (partition_id, number)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.schedule_total IS 'How many messages of a partition wait for their time; the newest by number counts. Written under the lock of the partition, with every change.';

-- What retention has dropped ---------------------------------------------------------------------------------------------

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

-- Views for operators: docs/OPERATIONS.md -------------------------------------------------------------------------------

CREATE VIEW laneway.lag AS
SELECT
    t.name AS topic, g.name AS group_name, p.number AS partition, placed.committed_offset, placed.next_offset,
    greatest(placed.next_offset - placed.committed_offset - placed.acked, 0) AS lag_messages,
    CASE
        WHEN placed.next_offset > placed.committed_offset
        THEN greatest(extract(epoch FROM clock_timestamp() - waiting.published_at), 0)
        ELSE 0
    END AS lag_seconds
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p ON p.partition_id = l.partition_id
LEFT JOIN LATERAL (
    SELECT lc.committed_offset, lc.acked
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT head.next_offset
    FROM laneway.head
    WHERE head.partition_id = l.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h ON true
CROSS JOIN LATERAL (
    SELECT
        greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset) AS committed_offset,
        coalesce(h.next_offset, 0) AS next_offset,
        (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(c.acked) AS r) AS acked
) placed
LEFT JOIN LATERAL (
    SELECT head.published_at, head.next_offset
    FROM laneway.head
    WHERE head.partition_id = l.partition_id AND head.next_offset <= placed.committed_offset
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) done ON placed.next_offset > placed.committed_offset
LEFT JOIN LATERAL (
    SELECT head.published_at
    FROM laneway.head
    WHERE head.partition_id = l.partition_id
      AND (head.published_at, head.next_offset) > (coalesce(done.published_at, '-infinity'), coalesce(done.next_offset, 0))
    ORDER BY head.published_at, head.next_offset
    LIMIT 1
) waiting ON placed.next_offset > placed.committed_offset
WHERE t.deleted_at IS NULL;
COMMENT ON VIEW laneway.lag IS 'How far each group is behind in each partition: messages that are not done, and how long the first of them has been waiting.';

CREATE VIEW laneway.lanes AS
SELECT
    t.name AS topic, g.name AS group_name, p.number AS partition, l.session_id AS holder, l.broker_id AS broker, l.epoch,
    CASE
        WHEN l.popped_until_at > clock_timestamp() THEN 'popped'
        WHEN l.session_id IS NULL AND l.wanted_session IS NULL THEN 'free'
        WHEN l.session_id IS NULL THEN 'waiting'
        WHEN l.session_id IS DISTINCT FROM l.wanted_session THEN 'draining'
        WHEN g.on_failure = 'block' AND EXISTS (
            SELECT FROM laneway.attempt a
            WHERE a.group_id = l.group_id AND a.partition_id = l.partition_id AND a."offset" >= placed.committed_offset
              AND a.attempts >= g.max_attempts
        ) THEN 'blocked'
        WHEN placed.committed_offset < l.suspect_until THEN 'suspect'
        ELSE 'held'
    END AS state,
    l.wanted_session AS wanted, l.drain_until_at
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p ON p.partition_id = l.partition_id
LEFT JOIN LATERAL (
    SELECT lc.committed_offset
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
CROSS JOIN LATERAL (
    SELECT greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset) AS committed_offset
) placed
WHERE t.deleted_at IS NULL;
COMMENT ON VIEW laneway.lanes IS 'Who holds which partition for which group, under which epoch, and what the lane is doing.';

CREATE VIEW laneway.stuck_lanes AS
SELECT
    topic, group_name, partition, lanes.state, lanes.epoch, lanes.holder, lanes.broker, lag.lag_messages, lag.lag_seconds,
    CASE
        WHEN lanes.state = 'blocked' THEN 'a message has failed too often, and the policy is to stop at it'
        WHEN lanes.holder IS NULL THEN 'nobody holds it'
        WHEN b.broker_id IS NULL OR b.dead_at IS NOT NULL OR b.expires_at < clock_timestamp() THEN 'its broker is silent'
        ELSE 'its holder had time to finish and has not let go'
    END AS reason
FROM laneway.lanes
JOIN laneway.lag USING (topic, group_name, partition)
LEFT JOIN laneway.broker b ON b.broker_id = lanes.broker
WHERE lag.lag_messages > 0
  AND lanes.state <> 'popped'
  AND (
      lanes.state = 'blocked'
      OR lanes.holder IS NULL
      OR b.broker_id IS NULL OR b.dead_at IS NOT NULL OR b.expires_at < clock_timestamp()
      OR lanes.drain_until_at < clock_timestamp()
  );
COMMENT ON VIEW laneway.stuck_lanes IS 'Lanes with messages that nobody is working on, and why.';

CREATE VIEW laneway.dead_letters_by_group AS
SELECT
    t.name AS topic, d.group_name, count(*) AS dead_letters, min(d.dead_at) AS oldest_at, max(d.dead_at) AS newest_at,
    sum(octet_length(d.payload))::bigint AS payload_bytes
FROM laneway.dead_letter d
JOIN laneway.topic t USING (topic_id)
WHERE t.deleted_at IS NULL
GROUP BY t.name, d.group_name;
COMMENT ON VIEW laneway.dead_letters_by_group IS 'How much each group has given up, and since when.';

CREATE VIEW laneway.broker_utilisation AS
SELECT
    b.broker_id AS broker, b.started_at, b.expires_at > clock_timestamp() AS is_alive,
    (SELECT count(*) FROM laneway.session s WHERE s.broker_id = b.broker_id) AS sessions,
    coalesce(held.groups, 0) AS groups, coalesce(held.lanes, 0) AS lanes,
    round(coalesce(held.lanes, 0) / nullif(sum(held.lanes) OVER (), 0), 3) AS lane_share
FROM laneway.broker b
LEFT JOIN (
    SELECT l.broker_id, count(*) AS lanes, count(DISTINCT l.group_id) AS groups
    FROM laneway.lane l
    WHERE l.session_id IS NOT NULL
    GROUP BY l.broker_id
) held USING (broker_id)
WHERE b.dead_at IS NULL;
COMMENT ON VIEW laneway.broker_utilisation IS 'What each broker that is not buried has to do: sessions, groups, lanes, and its share of all lanes that are held.';

CREATE VIEW laneway.session_utilisation AS
SELECT
    s.session_id AS session, s.broker_id AS broker, s.opened_at, t.name AS topic, g.name AS group_name, m.joined_at,
    count(l.partition_id) AS lanes,
    round(count(l.partition_id) / nullif(sum(count(l.partition_id)) OVER (PARTITION BY m.group_id), 0), 3) AS lane_share
FROM laneway.session s
JOIN laneway.member m USING (session_id)
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
LEFT JOIN laneway.lane l ON l.group_id = m.group_id AND l.session_id = m.session_id
WHERE t.deleted_at IS NULL
GROUP BY s.session_id, s.broker_id, s.opened_at, t.name, g.name, m.group_id, m.joined_at;
COMMENT ON VIEW laneway.session_utilisation IS 'What each member of a group holds of it: lanes, and its share of those that members hold.';

CREATE VIEW laneway.topic_utilisation AS
SELECT
    t.name AS topic, count(*) AS partitions, sum(h.messages)::bigint AS messages, sum(h.bytes)::bigint AS bytes,
    sum(s.segments)::bigint AS segments, sum(h.messages_last_hour)::bigint AS messages_last_hour,
    sum(h.bytes_last_hour)::bigint AS bytes_last_hour, max(h.last_published_at) AS last_published_at,
    round(max(h.messages) / nullif(sum(h.messages), 0), 3) AS largest_partition_share,
    round(sum(h.bytes) / t.retention_bytes, 3) AS retention_used
FROM laneway.topic t
JOIN laneway.partition p USING (topic_id)
LEFT JOIN LATERAL (
    SELECT head.next_offset, head.bytes_total, head.published_at
    FROM laneway.head
    WHERE head.partition_id = p.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) newest ON true
LEFT JOIN LATERAL (
    SELECT head.next_offset, head.bytes_total
    FROM laneway.head
    WHERE head.partition_id = p.partition_id AND head.published_at < clock_timestamp() - interval '1 hour'
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) hour_ago ON true
CROSS JOIN LATERAL (
    SELECT
        coalesce(newest.next_offset, 0) - p.start_offset AS messages,
        coalesce(newest.bytes_total, 0) - p.start_bytes_total AS bytes,
        greatest(coalesce(newest.next_offset, 0) - coalesce(hour_ago.next_offset, p.start_offset), 0) AS messages_last_hour,
        greatest(coalesce(newest.bytes_total, 0) - coalesce(hour_ago.bytes_total, p.start_bytes_total), 0) AS bytes_last_hour,
        newest.published_at AS last_published_at
) h
CROSS JOIN LATERAL (
    SELECT count(*) AS segments FROM laneway.segment WHERE segment.partition_id = p.partition_id
) s
WHERE t.deleted_at IS NULL AND p.deleted_at IS NULL
GROUP BY t.topic_id, t.name, t.retention_bytes;
COMMENT ON VIEW laneway.topic_utilisation IS 'What each topic stores and by how much it grew within the hour, from heads and the catalogue: no message is read.';
