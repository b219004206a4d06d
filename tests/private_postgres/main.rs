//! The private PostgreSQL against the real thing: real binaries, real processes, real sockets.
//!
//! Passes as root (the server then runs as another user) and as a normal user. What needs root says so and
//! returns. Every test has a directory of its own; `Scratch` ends what a failed test leaves running.

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

mod scratch;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use laneway::postgres::{Cause, Cluster, Error, Pace, Places, PrivatePostgres, Settings, Status, StopMode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid, getpgid};
use tokio::io::{AsyncBufReadExt, BufReader};

use scratch::{
    DEADLINE, Scratch, connect, eventually, lives_in, real_binaries, replace_program, running_again,
    settings, text, wait_for,
};

#[tokio::test]
async fn a_private_database_is_durable_private_and_speaks_utf8() {
    let scratch = Scratch::new();
    let fitted = Settings { extra: Vec::new(), ..scratch.settings() };
    let database = PrivatePostgres::start(fitted).await.unwrap();
    let client = connect(&database.url()).await.unwrap();
    let refused = "SELECT coalesce(string_agg(name, ','), '') FROM pg_file_settings WHERE error IS NOT NULL";
    assert_eq!(text(&client, refused).await, "");
    assert_eq!(text(&client, "SELECT current_database()::text").await, "laneway");
    for on in ["fsync", "synchronous_commit", "full_page_writes", "data_checksums"] {
        assert_eq!(text(&client, &format!("SHOW {on}")).await, "on", "{on}");
    }
    assert_eq!(text(&client, "SHOW server_encoding").await, "UTF8");
    assert_eq!(text(&client, "SELECT datcollate FROM pg_database WHERE datname = 'laneway'").await, "C");
    assert_eq!(text(&client, "SELECT string_agg(DISTINCT type, ',') FROM pg_hba_file_rules").await, "local");
    assert_eq!(fs::metadata(database.socket_dir()).unwrap().mode() & 0o777, 0o700);
    drop(client);
    database.stop().await.unwrap();
}

#[tokio::test]
async fn no_process_of_the_server_listens_on_tcp() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    let client = connect(&database.url()).await.unwrap();
    assert_eq!(text(&client, "SHOW listen_addresses").await, "");
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let tcp_inodes: Vec<&str> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| line.split_whitespace().nth(9))
        .collect();
    let fds = fs::read_dir(format!("/proc/{}/fd", scratch.recorded_pid().unwrap())).unwrap().flatten();
    let targets: Vec<PathBuf> = fds.filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
    let sockets: Vec<&str> =
        targets.iter().filter_map(|target| target.to_str()?.strip_prefix("socket:[")).collect();
    if targets.is_empty() {
        eprintln!("skipped in part: a root without CAP_SYS_PTRACE cannot see the sockets of another user");
    } else {
        assert!(!sockets.is_empty(), "its Unix socket is seen, so a TCP one would be too");
    }
    for inode in sockets {
        assert!(!tcp_inodes.contains(&inode.trim_end_matches(']')), "the postmaster holds a TCP socket");
    }
    drop(client);
    database.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_runs_unprivileged_in_a_process_group_of_its_own() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    let pid = scratch.recorded_pid().unwrap();
    assert_eq!(getpgid(Some(pid)).unwrap(), pid);
    assert_ne!(getpgid(Some(pid)).unwrap(), getpgid(None).unwrap());
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert!(!field("Uid:").split_whitespace().any(|uid| uid == "0"), "{status}");
    assert!(!field("Groups:").split_whitespace().any(|gid| gid == "0"), "{status}");
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_postmaster_is_restarted_and_the_data_is_still_there() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    let client = connect(&database.url()).await.unwrap();
    client.batch_execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)").await.unwrap();
    let first = scratch.recorded_pid().unwrap();
    kill(first, Signal::SIGKILL).unwrap();
    running_again(&database).await;
    assert_ne!(scratch.recorded_pid().unwrap(), first);
    let client = connect(&database.url()).await.unwrap();
    assert_eq!(text(&client, "SELECT n::text FROM kept").await, "42");
    drop(client);
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_start_on_the_same_data_directory_is_refused() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    let refused = PrivatePostgres::start(scratch.settings()).await.unwrap_err().to_string();
    assert!(refused.contains(scratch.data_dir().canonicalize().unwrap().to_str().unwrap()), "{refused}");
    assert!(refused.contains(&format!("(pid {})", std::process::id())), "{refused}");
    assert!(connect(&database.url()).await.is_some(), "the first is not disturbed");
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_in_order_leaves_no_process_and_frees_the_data_directory() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    let processes = scratch.processes();
    assert!(processes.len() > 3, "postmaster, logger, checkpointer and more: {processes:?}");
    let status = database.status();
    database.stop().await.unwrap();
    assert!(matches!(*status.borrow(), Status::Stopped));
    let is_gone = |pid: &Pid| kill(*pid, None).is_err();
    eventually("the last process is gone", async || processes.iter().all(is_gone).then_some(())).await;
    assert!(!scratch.pgdata().join("postmaster.pid").exists(), "it shut down in order");
    PrivatePostgres::start(scratch.settings()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_dropped_owner_leaves_the_server_running_and_frees_the_lock() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    let pid = scratch.recorded_pid().unwrap();
    drop(database);
    let again =
        eventually("the lock is free", async || PrivatePostgres::start(scratch.settings()).await.ok()).await;
    assert_eq!(scratch.recorded_pid().unwrap(), pid, "adopted, not restarted");
    again.stop().await.unwrap();
    assert!(!lives_in(pid, &scratch.pgdata()));
}

/// Not a test of its own: what the next test runs in another process and kills.
#[tokio::test]
#[ignore = "run by another test, as the broker that is killed"]
async fn a_broker_that_waits_to_be_killed() {
    let Some(data_dir) = std::env::var_os("LANEWAY_TEST_DATA_DIR") else { return };
    let _database = PrivatePostgres::start(settings(Path::new(&data_dir))).await.unwrap();
    println!("READY");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_database_whose_broker_was_killed_runs_on_and_is_adopted() {
    let scratch = Scratch::new();
    let mut broker = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_broker_that_waits_to_be_killed", "--nocapture"])
        .env("LANEWAY_TEST_DATA_DIR", scratch.data_dir())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(broker.stdout.take().unwrap()).lines();
    let ready = async { while !lines.next_line().await.unwrap().unwrap().contains("READY") {} };
    tokio::time::timeout(DEADLINE, ready).await.unwrap();
    let refused = PrivatePostgres::start(scratch.settings()).await.unwrap_err();
    assert!(matches!(&refused, Error::Locked { holder, .. } if *holder == broker.id()), "{refused}");
    let pid = scratch.recorded_pid().unwrap();
    broker.kill().await.unwrap();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    assert_eq!(scratch.recorded_pid().unwrap(), pid, "adopted, not restarted");
    assert!(connect(&database.url()).await.is_some());
    database.stop().await.unwrap();
    assert!(!lives_in(pid, &scratch.pgdata()), "an adopted server is stopped too");
}

#[tokio::test]
async fn an_adopted_postmaster_that_is_killed_is_restarted() {
    let scratch = Scratch::new();
    let cluster = Cluster::prepare(scratch.settings()).await.unwrap();
    let pid = cluster.start().await.unwrap();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    assert_eq!(scratch.recorded_pid(), Some(pid));
    kill(pid, Signal::SIGKILL).unwrap();
    running_again(&database).await;
    assert_ne!(scratch.recorded_pid(), Some(pid));
    assert!(connect(&database.url()).await.is_some());
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_yet_is_awaited_and_not_started_twice() {
    let scratch = Scratch::new();
    let cluster = Cluster::prepare(scratch.settings()).await.unwrap();
    let pid = cluster.start().await.unwrap();
    kill(pid, Signal::SIGSTOP).unwrap();
    let mut starting = Box::pin(PrivatePostgres::start(scratch.settings()));
    let early = tokio::time::timeout(Duration::from_secs(1), &mut starting).await;
    assert!(early.is_err(), "nothing answers, so it must wait");
    kill(pid, Signal::SIGCONT).unwrap();
    let database = tokio::time::timeout(DEADLINE, starting).await.unwrap().unwrap();
    assert_eq!(scratch.recorded_pid(), Some(pid));
    database.stop().await.unwrap();
}

#[tokio::test]
async fn an_adopted_server_of_another_minor_version_is_restarted_in_order() {
    let scratch = Scratch::new();
    let pid = Cluster::prepare(scratch.settings()).await.unwrap().start().await.unwrap();
    let major = fs::read_to_string(scratch.pgdata().join("PG_VERSION")).unwrap();
    let newer = format!("postgres (PostgreSQL) {}.99", major.trim());
    let bin_dir = Some(scratch.wrapped_binaries(Some(&newer)));
    let database = PrivatePostgres::start(Settings { bin_dir, ..scratch.settings() }).await.unwrap();
    assert_ne!(scratch.recorded_pid(), Some(pid));
    assert!(!lives_in(pid, &scratch.pgdata()));
    database.stop().await.unwrap();
}

#[tokio::test]
async fn binaries_that_change_under_a_running_server_lead_to_a_restart_in_order() {
    let scratch = Scratch::new();
    let bin_dir = scratch.wrapped_binaries(None);
    let settings = Settings { bin_dir: Some(bin_dir.clone()), ..scratch.settings() };
    let database = PrivatePostgres::start(settings).await.unwrap();
    let pid = scratch.recorded_pid().unwrap();
    scratch.wrapped_binaries(None); // the same again, as new files
    running_again(&database).await;
    assert_ne!(scratch.recorded_pid().unwrap(), pid);
    assert!(connect(&database.url()).await.is_some());
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_crash_after_the_binaries_moved_to_another_place_finds_them_there() {
    let scratch = Scratch::new();
    let bin_dir = scratch.wrapped_binaries(None);
    let path = std::env::join_paths([bin_dir.clone(), real_binaries()]).unwrap();
    let places = Places { path: Some(path), patterns: Vec::new() };
    let pace = Pace { upgrade_check: DEADLINE, ..scratch.settings().pace }; // the crash comes first
    let database =
        PrivatePostgres::start(Settings { places, pace, bin_dir: None, ..scratch.settings() }).await.unwrap();
    fs::remove_dir_all(&bin_dir).unwrap();
    kill(scratch.recorded_pid().unwrap(), Signal::SIGKILL).unwrap();
    running_again(&database).await;
    assert!(connect(&database.url()).await.is_some());
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_in_the_place_of_the_data_directory_is_named() {
    let scratch = Scratch::new();
    fs::write(scratch.data_dir(), "not a directory").unwrap();
    let sentence = PrivatePostgres::start(scratch.settings()).await.unwrap_err().to_string();
    assert!(sentence.contains(scratch.data_dir().to_str().unwrap()), "{sentence}");
    assert!(sentence.contains("Not a directory"), "{sentence}");
}

#[tokio::test]
async fn a_socket_that_vanishes_leads_to_a_restart_in_order() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    fs::remove_file(database.socket_dir().join(".s.PGSQL.5432")).unwrap();
    running_again(&database).await;
    assert!(connect(&database.url()).await.is_some());
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_pid_file_whose_pid_was_reused_does_not_prevent_the_start() {
    let scratch = Scratch::new();
    let cluster = Cluster::prepare(scratch.settings()).await.unwrap();
    cluster.start().await.unwrap();
    let file = scratch.pgdata().join("postmaster.pid");
    let mut lines: Vec<String> = fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
    cluster.stop(StopMode::Fast).await.unwrap();
    let owner = fs::metadata(scratch.pgdata()).unwrap();
    let mut stranger = std::process::Command::new("sleep");
    stranger.arg("600");
    if geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut stranger, owner.uid());
    }
    let mut stranger = stranger.spawn().unwrap();
    lines[0] = stranger.id().to_string();
    fs::write(&file, lines.join("\n")).unwrap();
    std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
    let started = PrivatePostgres::start(scratch.settings()).await;
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger is left alone");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    started.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_failure_that_needs_a_person_ends_in_failed_without_a_restart_loop() {
    let scratch = Scratch::new();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    let conf = scratch.pgdata().join("postgresql.conf");
    let broken = format!("{}\nsharde_buffers = 1\n", fs::read_to_string(&conf).unwrap());
    fs::write(&conf, broken).unwrap();
    kill(scratch.recorded_pid().unwrap(), Signal::SIGKILL).unwrap();
    let failed = wait_for(&database, "given up", |status| matches!(status, Status::Failed(_))).await;
    let Status::Failed(error) = failed else { unreachable!("waited for it") };
    assert!(matches!(*error, Error::Refused { cause: Cause::Configuration, .. }), "{error}");
    assert!(error.to_string().contains("sharde_buffers"), "{error}");
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_first_start_that_cannot_work_says_why_at_once() {
    let scratch = Scratch::new();
    let extra = vec![("wal_level".to_owned(), "maximal".to_owned())];
    let error = PrivatePostgres::start(Settings { extra, ..scratch.settings() }).await.unwrap_err();
    assert!(error.to_string().contains("invalid value for parameter \"wal_level\""), "{error}");
    PrivatePostgres::start(scratch.settings()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn missing_binaries_are_one_sentence_and_leave_nothing_behind() {
    let scratch = Scratch::new();
    let nowhere = Settings { places: Places::default(), bin_dir: None, ..scratch.settings() };
    let sentence = PrivatePostgres::start(nowhere).await.unwrap_err().to_string();
    assert_eq!(
        sentence,
        "No PostgreSQL 14 or newer was found on PATH or in the usual places: install its server binaries \
         (Debian and Ubuntu: `apt-get install postgresql`; you need not create a cluster, Laneway makes its \
         own), or give --database-url to use a server that already runs."
    );
    assert!(!scratch.data_dir().exists());
}

#[tokio::test]
async fn a_data_directory_of_another_major_is_refused_with_both_versions() {
    let scratch = Scratch::new();
    Cluster::prepare(scratch.settings()).await.unwrap();
    let refusal = async |major: u32| {
        fs::write(scratch.pgdata().join("PG_VERSION"), format!("{major}\n")).unwrap();
        PrivatePostgres::start(scratch.settings()).await.unwrap_err().to_string()
    };
    let newer = refusal(99).await;
    assert!(newer.contains("was made by PostgreSQL 99, but this machine only has PostgreSQL "), "{newer}");
    assert!(newer.contains("`apt-get install postgresql-99`"), "{newer}");
    let older = refusal(13).await;
    assert!(older.contains("was made by PostgreSQL 13, but Laneway needs 14 or newer"), "{older}");
}

#[tokio::test]
async fn a_data_directory_that_the_servers_user_cannot_reach_is_refused_by_name() {
    if !geteuid().is_root() {
        return eprintln!("skipped: only root runs the server as another user");
    }
    let scratch = Scratch::new();
    let closed = scratch.dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let error = PrivatePostgres::start(settings(&closed.join("deep/d"))).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { dir, .. } if *dir == closed), "{error}");
    assert!(error.to_string().contains(&format!("chmod o+x {}", closed.display())), "{error}");
    assert!(!closed.join("deep").exists(), "nothing was made");
}

#[tokio::test]
async fn a_disk_that_is_nearly_full_is_refused_with_the_figures() {
    let scratch = Scratch::new();
    let small = scratch.dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
        .arg(&small)
        .output();
    if !mount.is_ok_and(|mounted| mounted.status.success()) {
        return eprintln!("skipped: no mount here; the check itself has a unit test");
    }
    fs::set_permissions(&small, Permissions::from_mode(0o755)).unwrap();
    let refused = match PrivatePostgres::start(settings(&small.join("d"))).await {
        Ok(database) => database.stop().await.err(),
        Err(error) => Some(error),
    };
    assert!(std::process::Command::new("umount").arg(&small).status().unwrap().success());
    let sentence = refused.expect("too little space").to_string();
    assert!(sentence.contains("MiB are free") && sentence.contains("at least 128 MiB"), "{sentence}");
}

#[tokio::test]
async fn a_cluster_that_was_never_finished_is_removed_and_made_anew() {
    let scratch = Scratch::new();
    let unfinished = scratch.data_dir().join("pgdata.new-4242");
    fs::create_dir_all(&unfinished).unwrap();
    fs::write(unfinished.join("PG_VERSION"), "15\n").unwrap();
    let database = PrivatePostgres::start(scratch.settings()).await.unwrap();
    assert!(!unfinished.exists());
    database.stop().await.unwrap();
}

#[tokio::test]
async fn an_initdb_that_dies_in_the_middle_leaves_no_cluster() {
    let scratch = Scratch::new();
    let bin_dir = scratch.wrapped_binaries(None);
    let dies = "#!/bin/sh\necho 15 > \"$2/PG_VERSION\"\necho 'a bolt broke' >&2\nkill -9 $$\n";
    replace_program(&bin_dir.join("initdb"), dies);
    let broken = Settings { bin_dir: Some(bin_dir), ..scratch.settings() };
    let error = PrivatePostgres::start(broken).await.unwrap_err();
    assert!(matches!(&error, Error::InitdbFailed { said, .. } if said == "a bolt broke"), "{error}");
    assert!(!scratch.pgdata().exists());
    PrivatePostgres::start(scratch.settings()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn foreign_files_in_the_place_of_the_cluster_are_left_alone() {
    let scratch = Scratch::new();
    Cluster::prepare(scratch.settings()).await.unwrap();
    fs::remove_file(scratch.pgdata().join("PG_VERSION")).unwrap();
    let error = PrivatePostgres::start(scratch.settings()).await.unwrap_err();
    assert!(matches!(error, Error::NotACluster { .. }), "{error}");
    assert!(scratch.pgdata().join("global").exists());
}

#[tokio::test]
async fn a_data_directory_whose_path_suits_no_socket_gets_one_in_the_temp_directory() {
    let scratch = Scratch::new();
    let temp_dir = scratch.dir.path().to_owned();
    for name in ["it's a \"long\" path ".repeat(6), "a comma, which separates hosts".to_owned()] {
        let data_dir = scratch.dir.path().join(name);
        let settings = Settings { temp_dir: temp_dir.clone(), ..settings(&data_dir) };
        let database = PrivatePostgres::start(settings).await.unwrap();
        assert!(
            database.socket_dir().starts_with(&temp_dir) && !database.socket_dir().starts_with(&data_dir)
        );
        assert!(connect(&database.url()).await.is_some());
        database.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_data_directory_with_quotes_and_spaces_holds_its_own_socket() {
    let scratch = Scratch::new();
    let data_dir = scratch.dir.path().join("it's \"odd\" 100%");
    let database = PrivatePostgres::start(settings(&data_dir)).await.unwrap();
    assert!(database.socket_dir().starts_with(data_dir.canonicalize().unwrap()));
    assert!(connect(&database.url()).await.is_some());
    database.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_without_supervision_starts_and_stops_in_both_modes() {
    let scratch = Scratch::new();
    let cluster = Cluster::prepare(scratch.settings()).await.unwrap();
    for mode in [StopMode::Fast, StopMode::Immediate] {
        let pid = cluster.start().await.unwrap();
        assert_eq!(cluster.pid().unwrap(), Some(pid));
        let client = connect(&cluster.url()).await.unwrap();
        assert_eq!(text(&client, "SHOW shared_buffers").await, "16MB", "what the caller asks for wins");
        cluster.stop(mode).await.unwrap();
        assert_eq!(cluster.pid().unwrap(), None);
    }
}
