//! Redis: an append-only file that is forced to the disk always or every second, and nothing else that writes.

use std::net::SocketAddr;
use std::path::Path;

use tokio::process::Command;

use crate::error::Error;
use crate::system::Appendfsync;
use crate::work::{PARTITIONS, Work, group};
use crate::worker::redis::{connect, stream};

/// Snapshots and rewrites of the file are off: they would only take time from the work.
pub fn command(program: &Path, address: SocketAddr, directory: &Path, appendfsync: Appendfsync) -> Command {
    let appendfsync = match appendfsync {
        Appendfsync::Always => "always",
        Appendfsync::Everysec => "everysec",
    };
    let port = address.port().to_string();
    let mut command = Command::new(program);
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--daemonize",
        "no",
        "--logfile",
        "",
        "--save",
        "",
    ]);
    command.args(["--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0"]);
    command.arg("--dir").arg(directory);
    command
}

pub async fn answers(address: SocketAddr) -> bool {
    let Ok(mut connection) = connect(address).await else { return false };
    ::redis::cmd("PING").exec_async(&mut connection).await.is_ok()
}

/// Makes the groups of the work, and the streams with them.
pub async fn prepare(address: SocketAddr, work: Work) -> Result<(), Error> {
    let mut connection = connect(address).await?;
    for number in 0..work.groups() {
        for partition in 0..PARTITIONS {
            let mut create = ::redis::cmd("XGROUP");
            create.arg("CREATE").arg(stream(partition)).arg(group(number)).arg("0").arg("MKSTREAM");
            create.exec_async(&mut connection).await?;
        }
    }
    Ok(())
}
