//! What this machine has: memory, cores, free disk.
//!
//! Called by `conf` before every start, because limits and disks change. I read files under given roots, so
//! that a test can show me another machine. What cannot be read is assumed small, never large.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::error::Error;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Assumed where /proc/meminfo does not exist (macOS, BSD): every machine that runs a broker has this much.
const RAM_BYTES_UNKNOWN: u64 = 2 * GIB;

/// Below it even a start is dangerous: recovery writes WAL, and a PostgreSQL without disk ends in a panic.
pub const DISK_FREE_BYTES_MIN: u64 = 128 * MIB;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    pub ram_bytes: u64,
    pub cores: u64,
    pub disk_free_bytes: u64,
}

impl Machine {
    pub fn around(dir: &Path) -> Result<Self, Error> {
        Ok(Self {
            ram_bytes: ram_bytes(Path::new("/proc"), Path::new("/sys/fs/cgroup")),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            disk_free_bytes: disk_free_bytes(dir)?,
        })
    }

    pub fn check_disk(&self, dir: &Path) -> Result<(), Error> {
        if self.disk_free_bytes >= DISK_FREE_BYTES_MIN {
            return Ok(());
        }
        let (free_bytes, needed_bytes) = (self.disk_free_bytes, DISK_FREE_BYTES_MIN);
        Err(Error::DiskLow { dir: dir.into(), free_bytes, needed_bytes })
    }
}

/// Free for a user who is not root: the server has no share in the blocks reserved for root.
fn disk_free_bytes(dir: &Path) -> Result<u64, Error> {
    let stat = statvfs(dir).map_err(|errno| Error::io("measure the disk of", dir)(errno.into()))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

/// The machine's memory, or the limit of the container we run in if that is lower.
fn ram_bytes(proc: &Path, cgroup: &Path) -> u64 {
    let meminfo = fs::read_to_string(proc.join("meminfo")).unwrap_or_default();
    let total = mem_total_bytes(&meminfo).unwrap_or(RAM_BYTES_UNKNOWN);
    let own = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    cgroup_limit_bytes(&own, cgroup).map_or(total, |limit| limit.min(total))
}

fn mem_total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The lowest `memory.max` from our own cgroup (version 2) up to the root; each of them binds us.
fn cgroup_limit_bytes(own: &str, root: &Path) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |dir: &Path| fs::read_to_string(root.join(dir).join("memory.max")).ok()?.trim().parse().ok();
    Path::new(path).ancestors().filter_map(limit).min() // "max" is no number: no limit here
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_of(meminfo: &str, cgroup: &str, limits: &[(&str, &str)]) -> u64 {
        let temp = tempfile::tempdir().unwrap();
        let (proc, sys) = (temp.path().join("proc"), temp.path().join("cgroup"));
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::write(proc.join("meminfo"), meminfo).unwrap();
        fs::write(proc.join("self/cgroup"), cgroup).unwrap();
        for (dir, limit) in limits {
            fs::create_dir_all(sys.join(dir)).unwrap();
            fs::write(sys.join(dir).join("memory.max"), limit).unwrap();
        }
        ram_bytes(&proc, &sys)
    }

    const MEMINFO: &str = "MemTotal:        8388608 kB\nMemFree:          100 kB\n";

    #[test]
    fn memory_is_what_the_machine_has_when_nothing_limits_it() {
        assert_eq!(machine_of(MEMINFO, "0::/\n", &[]), 8 * GIB);
        assert_eq!(machine_of(MEMINFO, "0::/a/b\n", &[("a/b", "max\n")]), 8 * GIB);
    }

    #[test]
    fn the_lowest_limit_on_the_way_to_the_root_binds() {
        let limits = [("a/b", "4294967296\n"), ("a", "1073741824\n"), ("", "max\n")];
        assert_eq!(machine_of(MEMINFO, "1:name=x:/\n0::/a/b\n", &limits), GIB);
    }

    #[test]
    fn a_limit_above_the_machine_means_nothing() {
        assert_eq!(machine_of(MEMINFO, "0::/\n", &[("", "99999999999999\n")]), 8 * GIB);
    }

    #[test]
    fn an_unknown_machine_is_assumed_small() {
        assert_eq!(machine_of("nonsense", "", &[]), RAM_BYTES_UNKNOWN);
    }

    #[test]
    fn too_little_disk_is_refused_with_the_figures() {
        let machine = Machine { ram_bytes: GIB, cores: 1, disk_free_bytes: DISK_FREE_BYTES_MIN - 1 };
        let sentence = machine.check_disk(Path::new("/data")).unwrap_err().to_string();
        assert!(sentence.contains("Only 127 MiB") && sentence.contains("at least 128 MiB"), "{sentence}");
        Machine { disk_free_bytes: DISK_FREE_BYTES_MIN, ..machine }.check_disk(Path::new("/data")).unwrap();
    }
}
