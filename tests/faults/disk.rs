//! The disk is full: every error says what it means, nothing confirmed is lost, and with room everything goes on.
//!
//! Needs root, to mount a small file system. Without it the tests say so and return.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use laneway::broker::Broker;
use laneway::ids::{Offset, PartitionId};
use laneway::postgres::{Cluster, PrivatePostgres, Status};
use laneway::store::{DatabaseSettings, Store};
use tempfile::TempDir;

use crate::harness::database::{TestBroker, in_database};
use crate::harness::own::{self, OwnServer};
use crate::harness::process;
use crate::harness::produce::{all, topic, unit};
use crate::harness::wait;
use crate::witness::Told;

const MIB: u64 = 1 << 20;

/// A file system of a few megabytes, with ballast in it that can be thrown away.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// `None`: this user may not mount.
    fn mount(mebibytes: u64) -> Option<Self> {
        let directory = process::directory();
        let options = format!("size={mebibytes}m,mode=0755");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(directory.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("this user may not mount a file system: not tested");
            return None;
        }
        Some(Self { directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    fn free_bytes(&self) -> u64 {
        let stat = nix::sys::statvfs::statvfs(self.path()).unwrap();
        stat.blocks_available() * stat.fragment_size()
    }

    /// Leaves only this much room.
    fn fill_up_to(&self, left_bytes: u64) {
        let bytes = self.free_bytes() - left_bytes;
        let chunk = vec![0; MIB as usize];
        let mut file = File::create(self.ballast()).unwrap();
        for _ in 0..bytes / MIB {
            std::io::Write::write_all(&mut file, &chunk).unwrap();
        }
    }

    fn throw_ballast(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Publishes large messages one by one until some have failed in a row, and notes what was told about each.
async fn publish_until_full(broker: &Broker, partition_id: PartitionId, told: &mut Vec<Told>) {
    let failed =
        |told: &[Told]| told.iter().rev().take_while(|told| !matches!(told, Told::Stored(_))).count();
    while failed(told) < 5 {
        told.push(publish(broker, partition_id, told.len()).await);
        assert!(told.len() < 2_000, "the disk does not fill up");
    }
}

/// A message that says which it is and cannot be compressed away.
async fn publish(broker: &Broker, partition_id: PartitionId, number: usize) -> Told {
    let mut text = format!("{number}:");
    while text.len() < 200_000 {
        text.push_str(&uuid::Uuid::new_v4().to_string());
    }
    Told::of(&broker.appender.append(unit(partition_id, [text])).await)
}

/// Asserts that what is stored is what was confirmed, and at most what was in doubt.
async fn assert_kept(broker: &Broker, partition_id: PartitionId, told: &[Told]) {
    let number = |payload: &[u8]| -> usize {
        std::str::from_utf8(payload).unwrap().split_once(':').unwrap().0.parse().unwrap()
    };
    let stored: Vec<usize> =
        all(broker, partition_id).await.iter().map(|message| number(&message.payload)).collect();
    assert!(stored.is_sorted() && stored.windows(2).all(|pair| pair[0] != pair[1]));
    for (number, told) in told.iter().enumerate() {
        let place = stored.iter().position(|stored| *stored == number);
        match told {
            Told::Stored(offset) => assert_eq!(place.map(|place| Offset(place as i64)), Some(*offset)),
            Told::Unknown => {}
            Told::Nothing => assert_eq!(place, None, "{number} was refused and is stored"),
        }
    }
}

async fn publish_again(broker: &Broker, partition_id: PartitionId, told: &mut Vec<Told>) {
    wait::until("publishing to resume", async || {
        told.push(publish(broker, partition_id, told.len()).await);
        matches!(told.last(), Some(Told::Stored(_)))
    })
    .await;
}

/// Tables do not fit any more, the log does: PostgreSQL stays up.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_tables_refuses_publishes_until_there_is_room() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let server = OwnServer::start(&[]).await;
    let pgdata = std::fs::metadata(server.cluster.pgdata()).unwrap();
    let space = disk.path().join("space");
    std::fs::create_dir(&space).unwrap();
    std::os::unix::fs::chown(&space, Some(pgdata.uid()), Some(pgdata.gid())).unwrap();
    let admin = server.raw().await;
    let place = format!("CREATE TABLESPACE small LOCATION '{}'", space.display());
    admin.batch_execute(&place).await.unwrap();
    admin.batch_execute("CREATE DATABASE small TEMPLATE template0 TABLESPACE small").await.unwrap();
    let store = Store::new(DatabaseSettings::new(in_database(&server.cluster.url(), "small"))).unwrap();
    store.migrate().await.unwrap();
    let broker = TestBroker::start(store);
    let topic = topic(&broker, "orders", 2).await;
    let partition_id = topic.partitions[0];
    disk.fill_up_to(8 * MIB);
    let mut told = Vec::new();
    publish_until_full(&broker, partition_id, &mut told).await;
    assert!(told.iter().any(|told| matches!(told, Told::Stored(_))));
    assert!(!told.contains(&Told::Unknown), "PostgreSQL has said each time that nothing happened");
    assert_kept(&broker, partition_id, &told).await;
    // A partition without tables is refused in the same way, not left hanging.
    assert_eq!(publish(&broker, topic.partitions[1], 0).await, Told::Nothing);
    disk.throw_ballast();
    publish_again(&broker, partition_id, &mut told).await;
    assert_kept(&broker, partition_id, &told).await;
    let mut other = Vec::new();
    publish_again(&broker, topic.partitions[1], &mut other).await;
    broker.stop().await;
    drop(server); // before its disk
}

/// The log itself does not fit any more: PostgreSQL panics. It may or may not come back before there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_log_loses_nothing_that_was_confirmed() {
    let Some(disk) = SmallDisk::mount(400) else { return };
    let wal = [("max_wal_size", "64MB"), ("min_wal_size", "32MB"), ("wal_buffers", "1MB")];
    let settings = own::settings(disk.path().join("d"), &wal);
    let postgres = PrivatePostgres::start(settings.clone()).await.unwrap();
    let ended_with_us = EndsServer(Cluster::prepare(settings.clone()).await.unwrap());
    let store = Store::new(DatabaseSettings::new(postgres.url())).unwrap();
    store.migrate().await.unwrap();
    let broker = TestBroker::start(store);
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0];
    let mut told = vec![publish(&broker, partition_id, 0).await];
    disk.fill_up_to(20 * MIB);
    publish_until_full(&broker, partition_id, &mut told).await;
    assert!(matches!(told[0], Told::Stored(_)));
    let first_failure = told.iter().find(|told| !matches!(told, Told::Stored(_)));
    assert_eq!(first_failure, Some(&Told::Unknown), "what a panic interrupts may have been committed");
    disk.throw_ballast();
    // What the supervisor gave up on needs a person: somebody makes room and starts it again.
    let postgres = revived(postgres, &settings).await;
    publish_again(&broker, partition_id, &mut told).await;
    assert_kept(&broker, partition_id, &told).await;
    broker.stop().await;
    postgres.stop().await.unwrap();
    drop(ended_with_us); // before its disk
}

/// Waits until the server runs or is given up; starts it again in that case.
async fn revived(postgres: PrivatePostgres, settings: &laneway::postgres::Settings) -> PrivatePostgres {
    let mut status = postgres.status();
    let settled = status.wait_for(|status| matches!(status, Status::Running | Status::Failed(_))).await;
    let given_up = matches!(&*settled.unwrap(), Status::Failed(_));
    if !given_up {
        return postgres;
    }
    postgres.stop().await.unwrap();
    PrivatePostgres::start(settings.clone()).await.unwrap()
}

/// Ends the server of a test that has failed.
struct EndsServer(Cluster);

impl Drop for EndsServer {
    fn drop(&mut self) {
        own::end(&self.0);
    }
}
