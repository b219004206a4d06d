//! Laneway.
pub mod postgres;
