//! What `laneway serve` is told. From where (flags, variables, a file) is the command line's business.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where the broker listens unless told otherwise: this machine only.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7420";

/// Where the messages live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseChoice {
    /// A PostgreSQL that somebody runs.
    Given { url: String },
    /// One of our own, in a directory.
    Private { data_dir: Option<PathBuf>, bin_dir: Option<PathBuf> },
}

/// Whether addresses that others can reach are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Loopback only: there is no authentication yet.
    LoopbackOnly,
    /// The operator has said that he knows.
    Insecure,
}

/// An address that would expose an unauthenticated broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {address}: the broker has no authentication yet, so anybody who reaches this address could read \
     and write every topic; use a loopback address, or say --insecure-listen if the network itself is trusted"
)]
pub struct Exposed {
    pub address: SocketAddr,
}

/// Checks a listening address against the exposure that was asked for.
pub fn check_listen(address: SocketAddr, exposure: Exposure) -> Result<(), Exposed> {
    match (exposure, is_loopback(address.ip())) {
        (Exposure::Insecure, _) | (Exposure::LoopbackOnly, true) => Ok(()),
        (Exposure::LoopbackOnly, false) => Err(Exposed { address }),
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on_unless_somebody_insists() {
        for good in ["127.0.0.1:7420", "127.9.9.9:1", "[::1]:7420", "[::ffff:127.0.0.1]:7420"] {
            assert_eq!(check_listen(good.parse().unwrap(), Exposure::LoopbackOnly), Ok(()), "{good}");
        }
        for bad in ["0.0.0.0:7420", "10.1.2.3:7420", "[::]:7420"] {
            let address = bad.parse().unwrap();
            assert_eq!(check_listen(address, Exposure::LoopbackOnly), Err(Exposed { address }));
            assert_eq!(check_listen(address, Exposure::Insecure), Ok(()));
        }
    }
}
