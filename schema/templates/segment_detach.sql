-- segment_detach: takes a segment out of the insert path. Locks the partition's table exclusively for an instant.
ALTER TABLE laneway.message_p{partition_id} DETACH PARTITION laneway.message_s{segment_id};
