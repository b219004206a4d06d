//! The private PostgreSQL.
