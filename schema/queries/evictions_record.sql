-- evictions_record: ranges of a lane are not delivered. The lane's row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 outcome text ('evicted': they have expired; 'dead_letter': and are kept aside;
-- 'skip': retention has taken them before they could be),
-- $4 first_offsets bigint[], $5 end_offsets bigint[], $6 reasons text[]
INSERT INTO laneway.failure (group_id, partition_id, "offset", attempt, outcome, reason, failed_at, end_offset)
SELECT $1, $2, e.first_offset, 0, $3, e.reason, now(), e.end_offset
FROM unnest($4::bigint[], $5::bigint[], $6::text[]) AS e (first_offset, end_offset, reason)
