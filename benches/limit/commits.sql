-- Transactions that the database under test has committed since its statistics began.
SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()
