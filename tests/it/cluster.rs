//! The throw-away PostgreSQL: it starts, survives a crash, and never outlives its owner.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use leafhopper::demo::cluster::{Cluster, Durability};

use crate::harness::{
    database::{connect, options},
    wait::until,
};

/// The words before the folder in the line by which an owner tells its test about its cluster.
const ANNOUNCEMENT: &str = "cluster in ";

#[tokio::test]
async fn a_cluster_crashes_and_comes_back_with_what_was_committed() {
    let mut cluster = started(Durability::Synced).await;
    cluster.create_database("app", None).unwrap();
    cluster.create_database("a \"copy\"", Some("app")).unwrap();
    let url = cluster.url("app");
    connect(&url)
        .await
        .batch_execute("CREATE TABLE kept AS SELECT 7 AS seven")
        .await
        .unwrap();

    cluster.stop_immediate().unwrap();
    assert!(
        tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .is_err()
    );
    cluster.restart().unwrap();

    let row = connect(&url)
        .await
        .query_one("SELECT seven FROM kept", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i32>(0), 7);
    assert!(
        cluster.log_tail().contains("ready to accept connections"),
        "{}",
        cluster.log_tail()
    );
}

#[tokio::test]
async fn a_dropped_cluster_leaves_neither_server_nor_folder() {
    let cluster = started(Durability::Unsynced).await;
    let (folder, port) = (cluster.folder().to_path_buf(), cluster.port());
    drop(cluster);
    assert!(!folder.exists());
    assert!(
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    let mut options = options(Durability::Unsynced);
    options
        .settings
        .push(("shared_buffers".to_owned(), "lots".to_owned()));
    let error = tokio::task::spawn_blocking(|| Cluster::start(options))
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("invalid value for parameter \"shared_buffers\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_sigkill_of_the_owner_stops_the_server() {
    let (mut owner, folder) = owner();
    let postmaster = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    let postmaster = postmaster.lines().next().unwrap().to_owned();
    assert!(runs(&postmaster));

    owner.kill().unwrap();
    owner.wait().unwrap();

    until("the server of a killed owner is gone", async || {
        if runs(&postmaster) {
            Err("it runs")
        } else {
            Ok(())
        }
    })
    .await;
    until("its folder is gone", async || {
        if folder.exists() {
            Err(folder.clone())
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn what_lost_owner_and_watchdog_is_swept_by_the_next_start() {
    let (mut owner, folder) = owner();
    let postmaster = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    let postmaster = postmaster.lines().next().unwrap().to_owned();
    // The watchdog is the only process that has the folder among its arguments after `sh`.
    let watchdogs: Vec<String> = processes()
        .filter(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with("sh\0") && line.contains(folder.to_str().unwrap())
        })
        .collect();
    assert_eq!(watchdogs.len(), 1, "{watchdogs:?}");
    let watchdog = Pid::from_raw(watchdogs[0].parse().unwrap()).unwrap();
    kill_process(watchdog, Signal::KILL).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(runs(&postmaster), "without its watchdog the server goes on");

    drop(started(Durability::Unsynced).await);

    until("the swept server is gone", async || {
        if runs(&postmaster) || folder.exists() {
            Err(folder.clone())
        } else {
            Ok(())
        }
    })
    .await;
}

/// Not a test: the other process of the tests above, which waits to be killed.
#[test]
#[ignore = "run by the tests of this file, in a process of its own"]
fn owner_of_a_cluster() {
    let cluster = Cluster::start(options(Durability::Unsynced)).unwrap();
    println!("{ANNOUNCEMENT}{}", cluster.folder().display());
    std::io::stdout().flush().unwrap();
    // Ends with the pipe if the test that reads it dies, too.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn owner() -> (Child, PathBuf) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "cluster::owner_of_a_cluster",
            "--ignored",
            "--nocapture",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let folder = lines
        .find_map(|line| {
            line.split_once(ANNOUNCEMENT)
                .map(|(_, folder)| PathBuf::from(folder))
        })
        .expect("the owner says where its cluster is");
    (child, folder)
}

async fn started(durability: Durability) -> Cluster {
    let options = options(durability);
    tokio::task::spawn_blocking(|| Cluster::start(options))
        .await
        .unwrap()
        .unwrap()
}

/// A zombie does not run.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn processes() -> impl Iterator<Item = String> {
    let names = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    names
        .filter_map(|name| name.into_string().ok())
        .filter(|n| n.parse::<u32>().is_ok())
}
