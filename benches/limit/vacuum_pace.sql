-- Paces a vacuum by hand as this server paces its own. Tells the delay and the limit.
SELECT
    set_config('vacuum_cost_delay', CASE current_setting('autovacuum_vacuum_cost_delay')
        WHEN '-1' THEN current_setting('vacuum_cost_delay') ELSE current_setting('autovacuum_vacuum_cost_delay') END, false),
    set_config('vacuum_cost_limit', CASE current_setting('autovacuum_vacuum_cost_limit')
        WHEN '-1' THEN current_setting('vacuum_cost_limit') ELSE current_setting('autovacuum_vacuum_cost_limit') END, false)
