-- What decides how durable a commit is, as the server has it.
SELECT current_setting('fsync'), current_setting('synchronous_commit')
