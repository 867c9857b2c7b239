//! Each `sslmode` at servers of each kind.

use rcgen::{BasicConstraints, IsCa};

use super::{
    authority::Authority,
    server::{TlsServer, checked, checked_at, shared},
};
use crate::harness::database::Database;

const NO_TLS: &str = "sees no TLS";
const TLS: &str = "sees TLSv1.3";
const UNKNOWN: &str = "of none of the trusted authorities";
const MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// Looks at each mode, with a root file where one is given.
async fn expect(url: impl Fn(&str) -> String, root: &str, said: [&str; 6]) {
    let looks = MODES.into_iter().zip(said).map(|(mode, said)| {
        // They verify nothing, and say so.
        let root = match mode {
            "allow" | "prefer" => "",
            _ => root,
        };
        let url = url(&format!("sslmode={mode} {root}"));
        async move {
            let message = checked(&url).await;
            assert!(message.contains(said), "{mode} is not {said:?}: {message}");
        }
    });
    futures_util::future::join_all(looks).await;
}

#[tokio::test]
async fn a_server_with_the_right_certificate() {
    let server = shared().await;
    let url = |words: &str| server.url("anyhow", words);
    expect(url, &server.root(), [NO_TLS, NO_TLS, TLS, TLS, TLS, TLS]).await;
}

#[tokio::test]
async fn a_server_of_another_authority() {
    let server = shared().await;
    let other = Authority::new("somebody else");
    let root = format!("sslrootcert={}", other.file().display());
    let url = |words: &str| server.url("anyhow", words);
    expect(url, &root, [NO_TLS, NO_TLS, TLS, UNKNOWN, UNKNOWN, UNKNOWN]).await;
    // Without a root file nothing is looked at, as with libpq.
    assert!(checked(&url("sslmode=require")).await.contains(TLS));
    let system = checked(&url("sslmode=verify-full")).await;
    assert!(
        system.contains("(the system's)") || system.contains("no certificate authorities"),
        "{system}"
    );
}

#[tokio::test]
async fn a_server_by_another_name() {
    let server = shared().await;
    let url = |words: &str| server.url_of("other.example", "anyhow", words);
    let name = "is not for the name other.example";
    expect(url, &server.root(), [NO_TLS, NO_TLS, TLS, TLS, TLS, name]).await;
}

#[tokio::test]
async fn a_server_without_tls() {
    let database = Database::empty().await;
    let url = |words: &str| {
        let words = words.trim().replace(' ', "&");
        format!("{}?{words}", database.url)
    };
    let any = Authority::new("any");
    let root = format!("sslrootcert={}", any.file().display());
    let none = "never goes without; set ssl = on";
    expect(url, &root, [NO_TLS, NO_TLS, NO_TLS, none, none, none]).await;
}

#[tokio::test]
async fn a_server_whose_certificate_has_expired_is_revoked_or_signed_by_itself() {
    let server = TlsServer::start().await;
    server.shows(&server.authority.signs_expired(super::server::NAME));
    server.reload().await;
    let url = |words: &str| server.url("anyhow", words);
    let expired = "has to be renewed";
    expect(
        url,
        &server.root(),
        [NO_TLS, NO_TLS, TLS, expired, expired, expired],
    )
    .await;
    // Where nothing is verified, time is nothing, too.
    assert!(checked(&url("sslmode=require")).await.contains(TLS));

    let pair = server.authority.signs_number(super::server::NAME, 7);
    server.shows(&pair);
    server.reload().await;
    for (number, said) in [(7, "Revoked"), (8, TLS)] {
        let list = server.authority.revokes(number);
        let words = format!(
            "sslmode=verify-full {} sslcrl={}",
            server.root(),
            list.display()
        );
        let message = checked(&url(&words)).await;
        assert!(message.contains(said), "{number}: {message}");
    }

    // As `openssl req -x509` makes one, and as it should.
    let as_its_own = "the certificate of an authority as its own";
    for (is_ca, said) in [
        (IsCa::Ca(BasicConstraints::Unconstrained), as_its_own),
        (IsCa::ExplicitNoCa, TLS),
    ] {
        let pair = server.authority.self_signed(super::server::NAME, is_ca);
        server.shows(&pair);
        server.reload().await;
        let words = format!("sslmode=verify-full sslrootcert={}", pair.cert.display());
        let message = checked(&url(&words)).await;
        assert!(message.contains(said), "{said}: {message}");
    }
}

#[tokio::test]
async fn who_may_come_in_one_way_only_comes_in_that_way() {
    let server = shared().await;
    let refused = "no pg_hba.conf entry";
    let url = |words: &str| server.url("tls_only", words);
    expect(url, &server.root(), [refused, TLS, TLS, TLS, TLS, TLS]).await;
    let url = |words: &str| server.url("clear_only", words);
    let said = [NO_TLS, NO_TLS, NO_TLS, refused, refused, refused];
    expect(url, &server.root(), said).await;
    // A wrong password is wrong either way: it is not tried twice.
    let wrong = server.url("tls_only", "password=wrong sslmode=prefer");
    let message = checked(&wrong).await;
    assert_eq!(message.matches("password authentication failed").count(), 1);
}

#[tokio::test]
async fn the_usual_root_file_is_used_where_none_is_named() {
    let server = shared().await;
    let home = crate::harness::folder::Folder::new();
    let folder = home.path().join(".postgresql");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(server.authority.file(), folder.join("root.crt")).unwrap();
    let at_home = async |name: &str, mode: &str| {
        let url = server.url_of(name, "anyhow", &format!("sslmode={mode}"));
        checked_at(&url, Some(home.path())).await
    };
    for mode in ["require", "verify-ca", "verify-full"] {
        let message = at_home(super::server::NAME, mode).await;
        assert!(message.contains(TLS), "{mode}: {message}");
    }
    // With a root file `require` is as `verify-ca`: any name, and no other authority.
    assert!(at_home("other.example", "require").await.contains(TLS));
    let other = Authority::new("somebody else");
    std::fs::copy(other.file(), folder.join("root.crt")).unwrap();
    let message = at_home(super::server::NAME, "require").await;
    assert!(message.contains(UNKNOWN), "{message}");
    assert!(message.contains("root.crt"), "{message}");
}

#[tokio::test]
async fn versions_and_direct_tls() {
    let server = shared().await;
    let look = async |words: &str| {
        let words = format!("sslmode=verify-full {} {words}", server.root());
        checked(&server.url("anyhow", &words)).await
    };
    let message = look("ssl_max_protocol_version=TLSv1.2").await;
    assert!(message.contains("sees TLSv1.2"), "{message}");
    let message = look("sslsni=0 ssl_min_protocol_version=TLSv1.3").await;
    assert!(message.contains(TLS), "{message}");
    let message = look("sslnegotiation=direct").await;
    let modern = message.contains(TLS);
    assert!(
        modern || message.contains("needs PostgreSQL 17"),
        "{message}"
    );
}
