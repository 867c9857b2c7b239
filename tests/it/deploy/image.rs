//! The image's root, put together by the script that the Dockerfile runs, and the program in it: with nothing else, as
//! its user, as the first process.

use std::{
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{
    namespace::{child_of, unshare},
    not_here, run,
};
use crate::harness::{Bed, app::call, folder::Folder, wait::until};

/// Where chroot is.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

const USER: &str = "--userspec=65532:65532";

/// The files under it, as paths from there.
fn files(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(root, &path, found);
        } else {
            found.push(
                path.strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
}

fn inside(image: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("chroot");
    command
        .arg(USER)
        .arg(image)
        .arg("/usr/bin/leafhopper")
        .args(words);
    run(command.env_clear().env("PATH", PATH), "")
}

#[tokio::test]
async fn the_program_works_in_the_image_s_root_and_nothing_else_is_there() {
    let needs = ["chroot", "dpkg-query", "ldd", "strip"];
    let has = |name: &&str| {
        run(
            Command::new("sh").args(["-c", &format!("command -v {name}")]),
            "",
        )
    };
    let lacks = needs.iter().find(|name| !has(name).status.success());
    if !rustix::process::geteuid().is_root() || lacks.is_some() {
        return not_here("the image's root is put together by root, on Debian with binutils");
    }
    let Some(unshare) = unshare() else {
        return;
    };
    let folder = Folder::new();
    let image = folder.path().join("image");
    let program = env!("CARGO_BIN_EXE_leafhopper");
    let script = Command::new("deploy/image/root")
        .arg(program)
        .arg(&image)
        .output();
    let output = script.unwrap();
    assert!(output.status.success(), "{output:#?}");
    let mut found = Vec::new();
    files(&image, &image, &mut found);
    let programs: Vec<_> = found.iter().filter(|path| path.contains("bin/")).collect();
    assert_eq!(programs, ["usr/bin/leafhopper"], "{found:#?}");
    assert!(found.len() < 25, "{found:#?}");

    let bed = Bed::new().await;
    // It has to be known beforehand: `healthcheck` reads it in the configuration.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = bed
        .config("")
        .dispatch("state_dir = \"/var/lib/leafhopper\"");
    let config = config
        .text()
        .replace("127.0.0.1:0", &format!("0.0.0.0:{port}"));
    let file = image.join("etc/leafhopper/leafhopper.toml");
    std::fs::write(&file, config).unwrap();
    let check = inside(
        &image,
        &["healthcheck", "--config", "/etc/leafhopper/leafhopper.toml"],
    );
    assert_eq!(check.status.code(), Some(1), "it does not run: {check:#?}");

    // What every container has.
    let proc = image.join("proc");
    std::fs::create_dir(&proc).unwrap();
    let mut sidecar = Command::new(unshare[0]);
    sidecar.args(&unshare[1..]);
    sidecar.arg(format!("--mount-proc={}", proc.display()));
    sidecar.args(["chroot", USER]).arg(&image);
    sidecar.args([
        "/usr/bin/leafhopper",
        "run",
        "--config",
        "/etc/leafhopper/leafhopper.toml",
    ]);
    sidecar.env_clear().env("PATH", PATH);
    sidecar.stdout(Stdio::null()).stderr(Stdio::null());
    let mut sidecar = sidecar.spawn().unwrap();
    until("it is healthy", async || {
        let check = inside(
            &image,
            &["healthcheck", "--config", "/etc/leafhopper/leafhopper.toml"],
        );
        let ok = check.status.success() && check.stdout == b"ok\n";
        if ok { Ok(()) } else { Err(check) }
    })
    .await;
    let id = bed.app.insert(call("leaf").body(json!({"key": "a"}))).await;
    bed.app.until_state(id, "confirmed").await;
    let first = child_of(Pid::from_child(&sidecar)).await;
    kill_process(first, Signal::TERM).unwrap();
    let ended = until("it ends", async || sidecar.try_wait().unwrap().ok_or(())).await;
    assert_eq!(ended.code(), Some(0));

    authorities_are_brought_along(&image, &bed, port);
}

/// A leaf behind TLS needs them; nobody listens at that port.
fn authorities_are_brought_along(image: &Path, bed: &Bed, port: u16) {
    let url = format!("https://127.0.0.1:{port}");
    let config = bed.config("").leaf("far", &url, "").text();
    std::fs::write(image.join("etc/leafhopper/leafhopper.toml"), config).unwrap();
    let says = |wanted: &str| {
        let words = [
            "check",
            "--json",
            "--config",
            "/etc/leafhopper/leafhopper.toml",
        ];
        let check = inside(image, &words);
        let text =
            String::from_utf8(check.stdout).unwrap() + &String::from_utf8(check.stderr).unwrap();
        assert_eq!(check.status.code(), Some(1), "{text}");
        assert!(text.contains(wanted) && !text.contains("panic"), "{text}");
    };
    says("refused");
    std::fs::remove_file(image.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    says("leaf.far.tls.ca: no certificate authorities are found");
}
