-- Segments that retention took out of their partitions since the database began, and those of them whose tables are still there.
SELECT
    (SELECT count(*) FROM laneway.retention_event WHERE from_offset IS NOT NULL),
    (SELECT count(*) FROM laneway.segment WHERE state <> 'attached')
