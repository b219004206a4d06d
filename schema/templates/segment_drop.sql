-- segment_drop: gives the space of a detached segment back at once, whatever the number of its messages.
DROP TABLE laneway.message_s{segment_id};
