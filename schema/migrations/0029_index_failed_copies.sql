-- The copy that a parked key failed at is found at once, however many others stand before or behind it.

CREATE INDEX parked_message_failed ON laneway.parked_message (group_id, partition_id, parked_offset, attempts DESC, "offset")
    WHERE attempts > 0;
