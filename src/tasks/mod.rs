//! Periodic chores. Each is a task that lives until the broker stops, owns nothing durable, and can be run by any number of
//! brokers at once: the store decides who gets which piece of work.

pub mod heartbeat;
pub mod lag;
pub mod retention;
pub mod schedules;
pub mod upkeep;
pub mod walks;
