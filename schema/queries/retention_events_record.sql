-- retention_events_record: keeps that messages of a partition were dropped, and why.
-- $1 partition_id bigint, $2 reason text, $3 from_offset bigint, $4 to_offset bigint, $5 bytes bigint
-- Count: 1. In the transaction that moves the start of the partition. Locks the topic row against its deletion.
INSERT INTO laneway.retention_event (topic_id, reason, partition, from_offset, to_offset, bytes)
SELECT p.topic_id, $2, p.number, $3, $4, $5
FROM laneway.partition p
WHERE p.partition_id = $1
