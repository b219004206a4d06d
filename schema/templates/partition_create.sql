-- partition_create: the table of one partition. {partition_id}: an integer that we generated.
-- Made standalone and then attached, so that the parent is locked only against other schema changes, never against inserts.
CREATE TABLE laneway.message_p{partition_id} (LIKE laneway.message INCLUDING DEFAULTS) PARTITION BY RANGE ("offset");
ALTER TABLE laneway.message ATTACH PARTITION laneway.message_p{partition_id} FOR VALUES IN ({partition_id});
