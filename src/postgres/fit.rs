//! PostgreSQL's settings, fitted to the machine. Each carries its reason, which also stands in the written
//! file.
//!
//! Called by `conf`. Pure. Works for every major from 14 on, so nothing newer may appear here.
//! Invariant: whatever the machine, durability stays on and no TCP port opens.

use super::layout::PORT;
use super::machine::{GIB, MIB, Machine};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    pub why: &'static str,
}

pub fn fitted(machine: &Machine, socket_dir: &str) -> Vec<Setting> {
    let groups = [
        durability(),
        access(socket_dir),
        memory(machine),
        wal(machine),
        planner(),
        cleaning(machine),
        language(),
        logging(),
    ];
    groups.into_iter().flatten().collect()
}

fn set(name: &'static str, value: impl Into<String>, why: &'static str) -> Setting {
    Setting { name, value: value.into(), why }
}

fn durability() -> Vec<Setting> {
    vec![
        set("fsync", "on", "an acknowledged message survives a power cut"),
        set("synchronous_commit", "on", "acknowledged means on disk"),
        set("full_page_writes", "on", "a page torn by a power cut is repaired from the WAL"),
    ]
}

/// A list of directories is read like a list of identifiers, so the path is quoted like one.
fn access(socket_dir: &str) -> Vec<Setting> {
    let quoted = format!("\"{}\"", socket_dir.replace('"', "\"\""));
    vec![
        set("listen_addresses", "", "a private database: no TCP"),
        set("port", PORT.to_string(), "part of the socket's name"),
        set("unix_socket_directories", quoted, "brokers of this machine join here"),
        set("unix_socket_permissions", "0700", "the socket is the password"),
        set("max_connections", "200", "pools of several brokers, and room for a person with psql"),
        set("max_locks_per_transaction", "512", "one statement may touch many partition tables"),
    ]
}

fn memory(machine: &Machine) -> Vec<Setting> {
    let cache = (machine.ram_bytes / 2).max(256 * MIB);
    vec![
        set(
            "shared_buffers",
            mib(shared_buffers_bytes(machine)),
            "a quarter of the memory; more helps little",
        ),
        set(
            "effective_cache_size",
            mib(cache),
            "half of the memory caches files; only the planner reads this",
        ),
        set("huge_pages", "try", "cheaper page tables where the kernel has some reserved"),
    ]
}

fn shared_buffers_bytes(machine: &Machine) -> u64 {
    (machine.ram_bytes / 4).clamp(128 * MIB, 8 * GIB)
}

fn wal(machine: &Machine) -> Vec<Setting> {
    let wal_max = (machine.disk_free_bytes / 8).clamp(256 * MIB, 8 * GIB);
    let wal_min = (wal_max / 4).clamp(80 * MIB, GIB);
    let buffers = (shared_buffers_bytes(machine) / 16).clamp(8 * MIB, 64 * MIB);
    vec![
        set(
            "wal_buffers",
            mib(buffers),
            "holds several large batches, so that writers do not wait for each other",
        ),
        set("max_wal_size", mib(wal_max), "rare checkpoints, but never more than an eighth of the free disk"),
        set("min_wal_size", mib(wal_min), "recycled segments are cheaper than new ones"),
        set("checkpoint_timeout", "15min", "fewer full-page images; recovery still takes minutes at most"),
        set("checkpoint_completion_target", "0.9", "spreads the writes, so that latency stays even"),
        set("wal_compression", compression(machine), "on only where disk is scarcer than cores"),
    ]
}

/// Below this much free disk, the WAL is what fills it.
const DISK_TINY_BYTES: u64 = 4 * GIB;

fn compression(machine: &Machine) -> &'static str {
    if machine.disk_free_bytes < DISK_TINY_BYTES { "on" } else { "off" }
}

fn planner() -> Vec<Setting> {
    vec![
        set("random_page_cost", "1.1", "solid-state disks; a wrong guess of 4 leads to sequential scans"),
        set("jit", "off", "our statements are short; compiling them takes longer than running them"),
    ]
}

fn cleaning(machine: &Machine) -> Vec<Setting> {
    let workers = machine.cores.clamp(2, 5);
    vec![
        set("autovacuum", "on", "lanes and leases are updated all the time"),
        set(
            "autovacuum_max_workers",
            workers.to_string(),
            "one per core, so that a large table does not block the small",
        ),
        set("autovacuum_naptime", "15s", "the hot tables are small: clean them often, before they grow"),
        set(
            "autovacuum_vacuum_cost_limit",
            "2000",
            "the default is meant for spinning disks and falls behind",
        ),
        set("bgwriter_delay", "50ms", "clean pages are ready before a writer needs one"),
        set("bgwriter_lru_maxpages", "400", "keeps up with bursts of inserts at this delay"),
    ]
}

fn language() -> Vec<Setting> {
    vec![
        set("timezone", "UTC", "one clock for all brokers"),
        set("lc_messages", "C", "the supervisor reads the log"),
    ]
}

/// Seven files, one per weekday, each overwritten a week later: bounded without a cleaner.
fn logging() -> Vec<Setting> {
    vec![
        set("logging_collector", "on", "the log outlives the broker"),
        set("log_directory", "../log", "beside the data, readable without entering it"),
        set("log_filename", "postgresql-%a.log", "one file per weekday"),
        set("log_truncate_on_rotation", "on", "last week's file is overwritten"),
        set("log_rotation_age", "1d", "one file per weekday"),
        set("log_rotation_size", "0", "only the day decides, else files would not be truncated"),
        set("log_timezone", "UTC", "the same clock as the broker's log"),
        set("log_line_prefix", "%m [%p] ", "when and which process"),
    ]
}

fn mib(bytes: u64) -> String {
    format!("{}MB", bytes / MIB)
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn of(ram_bytes: u64, disk_free_bytes: u64) -> impl Fn(&str) -> String {
        let settings = fitted(&Machine { ram_bytes, cores: 4, disk_free_bytes }, "/d/run");
        move |name| settings.iter().find(|s| s.name == name).unwrap().value.clone()
    }

    fn mib_of(value: &str) -> u64 {
        value.strip_suffix("MB").unwrap().parse().unwrap()
    }

    #[test]
    fn a_middling_machine_gets_a_quarter_of_its_memory_and_an_eighth_of_its_disk() {
        let value = of(16 * GIB, 32 * GIB);
        assert_eq!(value("shared_buffers"), "4096MB");
        assert_eq!(value("effective_cache_size"), "8192MB");
        assert_eq!(value("max_wal_size"), "4096MB");
        assert_eq!(value("wal_buffers"), "64MB");
        assert_eq!(value("wal_compression"), "off");
    }

    #[test]
    fn a_tiny_machine_stays_above_what_postgres_needs() {
        let value = of(256 * MIB, 128 * MIB);
        assert_eq!(value("shared_buffers"), "128MB");
        assert_eq!(value("max_wal_size"), "256MB");
        assert_eq!(value("min_wal_size"), "80MB");
        assert_eq!(value("wal_compression"), "on");
    }

    #[test]
    fn a_socket_path_is_quoted_like_an_identifier() {
        let settings = fitted(&Machine { ram_bytes: GIB, cores: 1, disk_free_bytes: GIB }, "/a \"b\"/run");
        let dir = settings.iter().find(|s| s.name == "unix_socket_directories").unwrap();
        assert_eq!(dir.value, "\"/a \"\"b\"\"/run\"");
    }

    proptest! {
        #[test]
        fn every_machine_keeps_durability_and_sane_bounds(ram: u64, cores in 1u64..1024, disk: u64) {
            let all = fitted(&Machine { ram_bytes: ram, cores, disk_free_bytes: disk }, "/d/run");
            let value = |name: &str| all.iter().find(|s| s.name == name).unwrap().value.clone();
            for name in ["fsync", "synchronous_commit", "full_page_writes"] {
                prop_assert_eq!(value(name), "on");
            }
            prop_assert_eq!(value("listen_addresses"), "");
            prop_assert!((128..=8192).contains(&mib_of(&value("shared_buffers"))));
            prop_assert!((256..=8192).contains(&mib_of(&value("max_wal_size"))));
            prop_assert!(mib_of(&value("min_wal_size")) <= mib_of(&value("max_wal_size")));
            prop_assert!((8..=64).contains(&mib_of(&value("wal_buffers"))));
        }

        #[test]
        fn no_setting_is_named_twice(ram: u64, disk: u64) {
            let all = fitted(&Machine { ram_bytes: ram, cores: 2, disk_free_bytes: disk }, "/d/run");
            let names: std::collections::BTreeSet<&str> = all.iter().map(|s| s.name).collect();
            prop_assert_eq!(names.len(), all.len());
        }
    }
}
