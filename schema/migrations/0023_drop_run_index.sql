-- Runs are forgotten by walking their table: an index over time cost every flush an entry for each run.

DROP INDEX laneway.producer_run_published_at;
