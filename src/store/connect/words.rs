//! The parameters of libpq's connection strings (PostgreSQL, section 34.1.2): which ones mean something here.

/// What is handed on to [`tokio_postgres`].
pub(super) const KNOWN: [&str; 11] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
];

/// What is handled here.
pub(super) const OURS: [&str; 16] = [
    "host",
    "hostaddr",
    "port",
    "target_session_attrs",
    "load_balance_hosts",
    "channel_binding",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcrl",
    "sslcertmode",
    "sslnegotiation",
    "sslsni",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
];

/// What libpq knows and nothing here does, with what would be right.
pub(super) const UNSUPPORTED: [(&str, &str); 16] = [
    ("fallback_application_name", "use application_name"),
    ("gsslib", GSSAPI),
    ("krbsrvname", GSSAPI),
    ("gssdelegation", GSSAPI),
    ("passfile", PASSWORD),
    ("service", "write its parameters here"),
    ("servicefile", "write its parameters here"),
    ("replication", "leave it out"),
    (
        "require_auth",
        "use sslmode=verify-full, and channel_binding=require where the password is kept as SCRAM",
    ),
    (
        "requirepeer",
        "use a socket in a folder that only the server's user writes to",
    ),
    ("sslcrldir", "use sslcrl with one file of all lists"),
    ("sslkeylogfile", "leave it out"),
    (
        "sslpassword",
        "write the key without a password (openssl pkey -in OLD -out NEW) into a file that only \
         the sidecar can read",
    ),
    ("min_protocol_version", "leave it out"),
    ("max_protocol_version", "leave it out"),
    ("scram_client_key", PASSWORD),
];

/// What may be said, but not otherwise: the only value that holds here.
pub(super) const FIXED: [(&str, &[&str], &str); 4] = [
    ("gssencmode", &["disable", "prefer"], GSSAPI),
    (
        "sslcompression",
        &["0"],
        "TLS compression is broken; leave it out",
    ),
    (
        "client_encoding",
        &["UTF8", "utf8", "UTF-8", "utf-8", "auto"],
        "it is always UTF8; leave it out",
    ),
    ("requiressl", &["0"], "use sslmode=verify-full"),
];

const GSSAPI: &str = "Kerberos is not spoken here: use a password or a client certificate";
const PASSWORD: &str =
    "give the password in the url, from DATABASE_URL or url = { file = \"/path\" }";
