-- segments_insert: enters a segment into the catalogue; its table is made in the same transaction.
-- $1 partition_id bigint, $2 first_offset bigint, $3 end_offset bigint
-- One row: the id that names its table.
INSERT INTO laneway.segment (partition_id, first_offset, end_offset) VALUES ($1, $2, $3) RETURNING segment_id
