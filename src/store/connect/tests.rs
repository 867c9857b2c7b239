//! Tests of connection strings. None needs a database.

use std::sync::Arc;

use rustls::{
    CertificateError, Error, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use secrecy::SecretString;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::{Connect, ConnectError, tls::AnyName};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

fn parse(text: &str) -> Result<Connect, ConnectError> {
    Connect::parse(&SecretString::from(text))
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
    assert_eq!(config.get_connect_timeout().unwrap().as_secs(), 5);
    assert_eq!(config.get_tcp_user_timeout().unwrap().as_secs(), 30);
    assert_eq!(config.get_keepalives_idle().as_secs(), 15);
    assert_eq!(config.get_ssl_mode(), SslMode::Disable);
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
    assert_eq!(config.get_connect_timeout().unwrap().as_secs(), 9);
    assert_eq!(config.get_tcp_user_timeout().unwrap().as_millis(), 2500);
    assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::Any);
    assert_eq!(config.get_keepalives_retries(), Some(7));
}

#[test]
fn takes_several_hosts_sockets_and_addresses() {
    let connect = parse("postgres://u@one:5433,[::1],three/app?sslmode=disable").unwrap();
    let host = |name: &str| Host::Tcp(name.to_owned());
    assert_eq!(
        connect.config.get_hosts(),
        [host("one"), host("::1"), host("three")]
    );
    assert_eq!(connect.config.get_ports(), [5433, 5432, 5432]);
    assert_eq!(
        connect.to_string(),
        "postgres://u@one:5433,[::1]:5432,three:5432/app?sslmode=disable"
    );

    for socket in [
        "postgres://u@%2Frun%2Fpostgresql/app",
        "postgres:///app?host=/run/postgresql",
        "host=/run/postgresql dbname=app",
    ] {
        let connect = parse(socket).unwrap();
        assert_eq!(
            connect.config.get_hosts(),
            [Host::Unix("/run/postgresql".into())]
        );
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

#[test]
fn says_what_is_wrong() {
    for (text, said) in [
        ("postgres://h/app?sslmode=allow", "use `prefer`"),
        ("postgres://h/app?sslmode=on", "one of disable, prefer"),
        (
            "postgres://h/app?ssl_mode=require",
            "unknown parameter `ssl_mode`; did you mean `sslmode`?",
        ),
        (
            "postgres://h/app?gssencmode=disable",
            "unknown parameter `gssencmode`; known: user",
        ),
        ("postgres://h/app?connect_timeout=soon", "`connect_timeout`"),
        (
            "postgres://h/app?target_session_attrs=read-only",
            "read-only is of no use",
        ),
        ("postgres:///app", "names no host"),
        ("postgres://u:p@ss@h/app", "%40"),
        ("postgres://h/app?sslcert=/x", "only make sense together"),
        (
            "postgres://h/app?sslrootcert=/does/not/exist",
            "/does/not/exist",
        ),
        ("postgresql:/h", "neither a URL"),
    ] {
        let problem = refused(text);
        assert!(problem.contains(said), "{text} gives {problem}");
    }
}

#[test]
fn maps_every_sslmode() {
    let root = format!("sslrootcert={TLS}/ca.pem");
    for (mode, wanted) in [
        ("disable", SslMode::Disable),
        ("prefer", SslMode::Prefer),
        ("require", SslMode::Require),
        ("verify-ca", SslMode::Require),
        ("verify-full", SslMode::Require),
    ] {
        let connect = parse(&format!("postgres://db.example/app?sslmode={mode}&{root}")).unwrap();
        assert_eq!(connect.config.get_ssl_mode(), wanted, "{mode}");
        assert!(connect.to_string().ends_with(mode));
        let warned = connect.warnings.iter().any(|w| w.contains("in clear"));
        assert_eq!(warned, mode == "prefer", "{mode}: {:?}", connect.warnings);
    }
}

#[test]
fn reads_a_client_certificate() {
    let own = format!("sslrootcert={TLS}/ca.pem&sslcert={TLS}/server.pem");
    let url = |key: &str| format!("postgres://h/app?sslmode=verify-full&{own}&sslkey={TLS}/{key}");
    parse(&url("server.key")).unwrap();
    assert!(refused(&url("ca.pem")).contains("sslkey"));
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
