-- segment_freeze: freezes a sealed segment, so that it is never visited by a wraparound vacuum.
VACUUM (FREEZE, INDEX_CLEANUP OFF, TRUNCATE OFF) laneway.message_s{segment_id};
