-- Encryption at rest: which topics are encrypted, and what the keys are derived from that have sealed payloads.

ALTER TABLE laneway.topic
    ADD COLUMN encryption text COLLATE "C" NOT NULL DEFAULT 'none' CHECK (encryption IN ('none', 'aes_256_gcm'));
COMMENT ON COLUMN laneway.topic.encryption IS 'How the payloads of new messages are sealed; stored ones say themselves how they were.';

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

-- Nullable columns without a default: no row and no page of any segment is written.
ALTER TABLE laneway.message ADD COLUMN data_key_id uuid;
COMMENT ON COLUMN laneway.message.data_key_id IS 'What has sealed the payload; null: it is as it was published.';
ALTER TABLE laneway.schedule ADD COLUMN data_key_id uuid;
COMMENT ON COLUMN laneway.schedule.data_key_id IS 'What has sealed the payload; null: it is as it was published.';
CREATE INDEX schedule_data_key_id ON laneway.schedule (data_key_id) WHERE data_key_id IS NOT NULL;
ALTER TABLE laneway.dead_letter ADD COLUMN data_key_id uuid;
COMMENT ON COLUMN laneway.dead_letter.data_key_id IS 'What has sealed the payload; null: it is as it was published.';
CREATE INDEX dead_letter_data_key_id ON laneway.dead_letter (data_key_id) WHERE data_key_id IS NOT NULL;
ALTER TABLE laneway.parked_message ADD COLUMN data_key_id uuid;
COMMENT ON COLUMN laneway.parked_message.data_key_id IS 'What has sealed the payload; null: it is as it was published.';
CREATE INDEX parked_message_data_key_id ON laneway.parked_message (data_key_id) WHERE data_key_id IS NOT NULL;
