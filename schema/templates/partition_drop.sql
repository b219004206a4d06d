-- partition_drop: takes the table of a deleted partition out of the insert path and drops it. {partition_id}: an integer
-- that we generated. Locks the parent exclusively for an instant; all segments are gone by then, so it holds nothing.
DROP TABLE IF EXISTS laneway.message_p{partition_id};
