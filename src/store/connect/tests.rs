//! Tests of connection strings. None needs a database.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, Error, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

use super::{
    Connect, ConnectError,
    ssl::Mode,
    tls::{Client, Roots, Verify},
    verifiers::AnyName,
};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

fn parse(text: &str) -> Result<Connect, ConnectError> {
    Connect::parse_with(text, None)
}

fn refused(text: &str) -> String {
    match parse(text) {
        Ok(connect) => panic!("{text} is taken as {connect}"),
        Err(problem) => problem.to_string(),
    }
}

#[test]
fn fills_in_what_the_string_leaves_open() {
    let connect = parse("postgres://sidecar@db.example/app?sslmode=disable").unwrap();
    let config = &connect.config;
    assert_eq!(config.get_user(), Some("sidecar"));
    assert_eq!(config.get_dbname(), Some("app"));
    assert_eq!(config.get_application_name(), Some("leafhopper"));
    assert_eq!(
        config.get_target_session_attrs(),
        TargetSessionAttrs::ReadWrite
    );
    assert_eq!(connect.patience().as_secs(), 5);
    assert_eq!(config.get_tcp_user_timeout().unwrap().as_secs(), 30);
    assert_eq!(config.get_keepalives_idle().as_secs(), 15);
    assert_eq!(config.get_channel_binding(), ChannelBinding::Prefer);
    assert_eq!(connect.mode, Mode::Disable);
}

#[test]
fn leaves_what_the_string_says() {
    let connect = parse(
        "postgres://db.example/app?sslmode=disable&application_name=mine&connect_timeout=9\
         &tcp_user_timeout=2500&target_session_attrs=any&keepalives_count=7",
    )
    .unwrap();
    let config = &connect.config;
    assert_eq!(config.get_application_name(), Some("mine"));
    assert_eq!(connect.patience().as_secs(), 9);
    assert_eq!(config.get_tcp_user_timeout().unwrap().as_millis(), 2500);
    assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::Any);
    assert_eq!(config.get_keepalives_retries(), Some(7));
}

#[test]
fn takes_several_hosts_sockets_and_addresses() {
    let connect = parse("postgres://u@one:5433,[::1],three/app?sslmode=disable").unwrap();
    assert_eq!(
        connect.to_string(),
        "postgres://u@one:5433,[::1]:5432,three:5432/app?sslmode=disable"
    );
    // Two seconds for each but the last, which has as long as one that is alone.
    assert_eq!(connect.patience().as_secs(), 9);
    let connect = parse("host=one,two hostaddr=192.0.2.1,192.0.2.2 port=5433").unwrap();
    assert_eq!(
        connect.to_string(),
        "postgres://one:5433,two:5433?sslmode=prefer"
    );
    let addresses = connect.servers.iter().map(|server| server.address);
    let addresses: Vec<_> = addresses.flatten().map(|a| a.to_string()).collect();
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.2"]);
    // A certificate can be for an address.
    let connect = parse("hostaddr=192.0.2.1 sslmode=disable").unwrap();
    assert_eq!(connect.servers[0].name, "192.0.2.1");

    for socket in [
        "postgres://u@%2Frun%2Fpostgresql/app",
        "postgres:///app?host=/run/postgresql",
        "host=/run/postgresql dbname=app",
    ] {
        let connect = parse(socket).unwrap();
        assert!(connect.servers[0].is_socket(), "{connect}");
        assert_eq!(connect.servers[0].name, "/run/postgresql");
    }
}

#[test]
fn a_password_keeps_its_reserved_characters() {
    let password = r"p@ss/w?rd#'\% &=:";
    let url = "postgres://u:p%40ss%2Fw%3Frd%23%27%5C%25%20%26%3D%3A@h/app?sslmode=disable";
    let pairs = r"user=u password='p@ss/w?rd#\'\\% &=:' host=h dbname=app sslmode=disable";
    for text in [url, pairs] {
        let connect = parse(text).unwrap();
        assert_eq!(
            connect.config.get_password(),
            Some(password.as_bytes()),
            "{text}"
        );
        assert_eq!(
            connect.to_string(),
            "postgres://u:[redacted]@h:5432/app?sslmode=disable"
        );
        let debug = format!("{connect:?}");
        assert!(!debug.contains("w?rd"), "{debug}");
    }
}

#[test]
fn a_refusal_shows_nothing_of_a_password() {
    for text in [
        "postgres://u:hun@ter2@h/app",
        "postgres://u:hun/ter2@h/app",
        "postgres://u:hun?ter2=x@h/app",
        "postgres://u:hun#ter2@h/app",
        "postgres://u:hun%ter2@h/app",
        "postgres://u:hunter2/app",
        "postgres://h/app?password=hun@ter2",
        "postgres://h/app?password=hun&ter2=x",
        "postgres://h/app?password=hun&ter2",
        "postgres://u:hunter2@/app",
        "postgres://u:hunter2@h:port/app",
        "postgres://u:hunter2@h/app?sslmode=sometimes",
        "postgres://u:hunter2@h/app?connect_timeout=hunter2",
        "mysql://u:hunter2@h/app",
        "host=h password=hun ter2=x",
        "host=h password='hunter2",
        "host=h password=hun ter2",
        "hunter2",
    ] {
        let problem = refused(text);
        assert!(
            !problem.contains("hun") && !problem.contains("ter2"),
            "{text} gives {problem}"
        );
    }
}

/// Strings, and a part of what is said about each.
const WRONG: &[(&str, &str)] = &[
    (
        "postgres://h/app?sslmode=on",
        "one of disable, allow, prefer",
    ),
    (
        "postgres://h/app?ssl_mode=require",
        "unknown parameter `ssl_mode`; did you mean `sslmode`?",
    ),
    ("postgres://h/app?colour=red", "`colour`; known: user"),
    ("postgres://h/app?gssencmode=require", "Kerberos"),
    ("postgres://h/app?sslpassword=x", "openssl pkey"),
    ("postgres://h/app?passfile=/x", "DATABASE_URL"),
    ("postgres://h/app?service=x", "is not supported"),
    ("postgres://h/app?client_encoding=LATIN1", "always UTF8"),
    ("postgres://h/app?connect_timeout=soon", "`connect_timeout`"),
    (
        "postgres://h/app?target_session_attrs=read-only",
        "read-only is of no use",
    ),
    (
        "postgres://h/app?target_session_attrs=standby",
        "read-only is of no use",
    ),
    (
        "postgres://h/app?load_balance_hosts=yes",
        "disable, random is wanted",
    ),
    (
        "postgres://h/app?channel_binding=on",
        "disable, prefer, require is wanted",
    ),
    (
        "postgres://h/app?channel_binding=require&sslmode=disable",
        "wants TLS",
    ),
    (
        "postgres:///app?host=/run&channel_binding=require",
        "wants TLS",
    ),
    ("postgres:///app", "names no host"),
    ("postgres://h,/app", "one of its hosts is empty"),
    ("host=a,b hostaddr=192.0.2.1", "1 are given for 2 hosts"),
    ("host=a,b port=1,2,3", "3 are given for 2 hosts"),
    ("host=a hostaddr=b", "an IP address is wanted"),
    ("host=a port=70000", "up to 65535"),
    ("postgres://u:p@ss@h/app", "%40"),
];

/// The same, of TLS.
const WRONG_TLS: &[(&str, &str)] = &[
    ("postgres://h/app?sslcert=/x", "only make sense together"),
    ("postgres://h/app?sslkey=/x", "only make sense together"),
    (
        "postgres://h/app?sslmode=verify-ca&sslrootcert=/does/not/exist",
        "/does/not/exist",
    ),
    (
        "postgres://h/app?sslmode=require&sslrootcert=/does/not/exist",
        "/does/not/exist",
    ),
    ("postgres://h/app?sslmode=verify-ca", "root.crt"),
    (
        "postgres://h/app?sslrootcert=/does/not/exist",
        "prefer verifies nothing",
    ),
    (
        "postgres://h/app?sslmode=require&sslrootcert=system",
        "wants sslmode=verify-full, not require",
    ),
    (
        "postgres://h/app?sslmode=verify-ca&sslrootcert=system",
        "wants sslmode=verify-full, not verify-ca",
    ),
    ("postgres://h/app?sslcrl=/x", "no certificate is verified"),
    ("postgres://h/app?sslnegotiation=direct", "never uses clear"),
    ("postgres://h/app?sslcertmode=require", "pg_hba.conf"),
    ("postgres://h/app?sslsni=yes", "1 or 0"),
    (
        "postgres://h/app?ssl_max_protocol_version=TLSv1.1",
        "below 1.2 is broken",
    ),
    (
        "postgres://h/app?ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=TLSv1.2",
        "is below",
    ),
    ("postgresql:/h", "neither a URL"),
];

#[test]
fn says_what_is_wrong() {
    let crl = format!(
        "postgres://h/app?sslmode=verify-full&sslrootcert={TLS}/ca.pem&sslcrl={TLS}/ca.pem"
    );
    let no_list = [(crl.as_str(), "`sslcrl`")];
    for (text, said) in WRONG.iter().chain(WRONG_TLS).chain(&no_list) {
        let problem = refused(text);
        assert!(problem.contains(said), "{text} gives {problem}");
    }
}

#[test]
fn what_others_write_and_changes_nothing_is_taken() {
    parse(
        "postgres://h/app?gssencmode=disable&sslcompression=0&client_encoding=UTF8&sslsni=0\
         &sslcertmode=allow&ssl_min_protocol_version=TLSv1&target_session_attrs=primary\
         &sslmode=disable",
    )
    .unwrap();
}

/// What each mode verifies, with a root file that is named, one at the usual place, and without any.
#[test]
fn maps_every_sslmode_as_libpq_does() {
    let usual = Folder::new();
    let file = |name: &str| Roots::File(name.into());
    let named = format!("{TLS}/ca.pem");
    let at_home = usual.0.join("root.crt").display().to_string();
    for (mode, verify, roots, warned) in [
        (
            "disable",
            [Verify::Nothing; 3],
            [Roots::None, Roots::None],
            false,
        ),
        (
            "allow",
            [Verify::Encrypted; 3],
            [Roots::None, Roots::None],
            true,
        ),
        (
            "prefer",
            [Verify::Encrypted; 3],
            [Roots::None, Roots::None],
            true,
        ),
        (
            "require",
            [Verify::Chain, Verify::Chain, Verify::Encrypted],
            [file(&named), file(&at_home)],
            false,
        ),
        (
            "verify-ca",
            [Verify::Chain; 3],
            [file(&named), file(&at_home)],
            false,
        ),
        (
            "verify-full",
            [Verify::ChainAndName; 3],
            [file(&named), file(&at_home)],
            false,
        ),
    ] {
        let text = format!("postgres://db.example/app?sslmode={mode}");
        let with = format!("{text}&sslrootcert={named}");
        let none = match mode {
            "verify-ca" => None,
            _ => Some(parse(&text).unwrap()),
        };
        let home = Connect::parse_with(&text, Some(&usual.0)).unwrap();
        if let Some(none) = &none {
            assert_eq!(none.tls.files().verify, verify[2], "{mode}");
        }
        if !["allow", "prefer"].contains(&mode) {
            let given = Connect::parse_with(&with, Some(&usual.0)).unwrap();
            assert_eq!(given.tls.files().verify, verify[0], "{mode}");
            assert_eq!(given.tls.files().roots, roots[0], "{mode}");
        }
        assert_eq!(home.tls.files().verify, verify[1], "{mode}");
        assert_eq!(home.tls.files().roots, roots[1], "{mode}");
        assert_eq!(home.mode.name(), mode);
        assert_eq!(home.warnings.is_empty(), !warned, "{:?}", home.warnings);
    }
    let unverified = parse("postgres://db.example/app?sslmode=require").unwrap();
    assert!(unverified.warnings[0].contains("does not look with whom"));
    let near = parse("postgres://localhost/app?sslmode=require").unwrap();
    assert!(near.warnings.is_empty(), "{:?}", near.warnings);
    let whole = Connect::parse_with("postgres://h/app?sslrootcert=system", Some(&usual.0)).unwrap();
    assert_eq!(whole.mode, Mode::VerifyFull);
    assert_eq!(whole.tls.files().roots, Roots::System);
}

#[test]
fn reads_a_client_certificate() {
    let own = format!("sslrootcert={TLS}/ca.pem&sslcert={TLS}/server.pem");
    let url = |key: &str| format!("postgres://h/app?sslmode=verify-full&{own}&sslkey={TLS}/{key}");
    parse(&url("server.key")).unwrap();
    assert!(refused(&url("ca.pem")).contains("sslkey"));

    let usual = Folder::new();
    let client = |text: &str| {
        let connect = Connect::parse_with(text, Some(&usual.0)).unwrap();
        connect.tls.files().client.clone()
    };
    let at_home = Client {
        cert: usual.0.join("postgresql.crt"),
        key: usual.0.join("postgresql.key"),
    };
    assert_eq!(client("postgres://h/app?sslmode=require"), Some(at_home));
    assert_eq!(client("postgres://h/app?sslcertmode=disable"), None);
    assert_eq!(client("postgres://h/app?sslmode=disable"), None);

    let key = std::fs::read_to_string(format!("{TLS}/server.key")).unwrap();
    let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
    std::fs::write(usual.0.join("postgresql.key"), encrypted).unwrap();
    let refusal = Connect::parse_with("postgres://h/app", Some(&usual.0)).unwrap_err();
    assert!(refusal.to_string().contains("openssl pkey"), "{refusal}");
}

/// A `~/.postgresql` with all of its files, which goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("leafhopper-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir(&path).unwrap();
        for (from, to) in [
            ("ca.pem", "root.crt"),
            ("server.pem", "postgresql.crt"),
            ("server.key", "postgresql.key"),
        ] {
            std::fs::copy(format!("{TLS}/{from}"), path.join(to)).unwrap();
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn verify_ca_forgives_the_name_and_nothing_else() {
    let read = |file: &str| CertificateDer::from_pem_file(format!("{TLS}/{file}")).unwrap();
    let verifier = |ca: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(read(ca)).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let whole = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        AnyName { whole }
    };
    let name = ServerName::try_from("elsewhere.example").unwrap();
    let server = read("server.pem");
    let verify = |verifier: &dyn ServerCertVerifier, now| {
        verifier.verify_server_cert(&server, &[], &name, &[], now)
    };

    let right = verifier("ca.pem");
    assert!(matches!(
        verify(right.whole.as_ref(), UnixTime::now()),
        Err(Error::InvalidCertificate(
            CertificateError::NotValidForNameContext { .. }
        ))
    ));
    assert!(verify(&right, UnixTime::now()).is_ok());
    assert!(matches!(
        verify(&verifier("other-ca.pem"), UnixTime::now()),
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    ));
    // Before it was made.
    let long_ago = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1));
    assert!(verify(&right, long_ago).is_err());
}
