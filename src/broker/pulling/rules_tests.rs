//! The rules of pops, without a database.
