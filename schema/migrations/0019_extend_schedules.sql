-- Messages that wait may have a ttl, and how many wait is known without counting.

ALTER TABLE laneway.schedule ADD COLUMN ttl_ms bigint;
COMMENT ON COLUMN laneway.schedule.ttl_ms IS 'How long after it was appended it is worth delivering; null: for ever.';

-- Why inserts, and not a counter in a row: docs/adr/0001-insert-only-heads.md.
CREATE TABLE laneway.schedule_total (
    partition_id  bigint NOT NULL REFERENCES laneway.partition ON DELETE CASCADE,
    number        bigint NOT NULL,
    scheduled     bigint NOT NULL CHECK (scheduled >= 0),
    PRIMARY KEY (partition_id, number)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.schedule_total IS 'How many messages of a partition wait for their time; the newest by number counts. Written under the lock of the partition, with every change.';

INSERT INTO laneway.schedule_total (partition_id, number, scheduled)
SELECT s.partition_id, 1, count(*)
FROM laneway.schedule s
JOIN laneway.partition p USING (partition_id)
GROUP BY s.partition_id;
