-- trace_cut_count: how many blocks a closed cut has, and how many of them still have messages.
-- Reads the whole cut, without its arrays: for closed cuts, once in a while.
SELECT count(*) AS blocks, count(*) FILTER (WHERE b.first_offset + b.messages > p.start_offset) AS living
FROM laneway.trace_block_c{cut_id} b
LEFT JOIN laneway.partition p USING (partition_id)
