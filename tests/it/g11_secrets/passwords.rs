//! The database's password: with every character that a connection string takes for its own, where the database is there,
//! where it is down, and where the string can't be read.

use super::{assert_holds_none, text_of, to};
use crate::harness::{
    Bed,
    sidecar::{Config, LOG_LEVEL, LOUD, Starter},
    wait::until,
};

/// What a password is made of, with everything between that a connection string takes for its own.
const PIECES: [&str; 12] = [
    "alpha7Q", "beta8W", "gamma9E", "delta0R", "epsil1T", "zeta2Y", "theta3U", "iota4I", "kappa5O",
    "lambda6P", "omega7A", "sigma8S",
];
const RESERVED: [&str; 11] = ["@", ":", "/", "?", "#", "&", "=", "'", "\"", "\\", " %"];

fn awkward_password() -> String {
    let between = RESERVED.iter().chain([&""]);
    PIECES
        .iter()
        .zip(between)
        .flat_map(|(piece, reserved)| [*piece, *reserved])
        .collect()
}

/// As a URL has it.
fn encoded(text: &str) -> String {
    let escaped = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(escaped).collect()
}

fn assert_no_piece(place: &str, said: &str) {
    let pieces = PIECES.map(str::to_owned);
    assert_holds_none(place, said, &pieces);
}

/// What a command says, on both streams.
async fn said_by(starter: &Starter, command: &[&str]) -> String {
    let output = starter.command(command).await;
    [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8(bytes).unwrap())
        .concat()
}

#[tokio::test]
async fn a_password_with_reserved_characters_is_shown_nowhere() {
    let bed = Bed::new().await;
    let password = awkward_password();
    let role = format!("awkward_{}", std::process::id());
    let quoted = password.replace('\'', "''");
    bed.app
        .execute(&format!(
            "CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{quoted}'"
        ))
        .await;
    let mut url = reqwest::Url::parse(&bed.database.url).unwrap();
    let at = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let database = bed.database.name.clone();
    let right = format!("postgres://{role}:{}@{at}/{database}", encoded(&password));
    url.set_host(Some("127.0.0.1")).unwrap();
    let backslashed = password.replace('\\', "\\\\").replace('\'', "\\'");
    for url in [
        right.clone(),
        format!(
            "host={} port={} dbname={database} user={role} password='{backslashed}'",
            url.host_str().unwrap(),
            url.port().unwrap()
        ),
        // Nobody listens there.
        right.replace(&at, "127.0.0.1:1"),
    ] {
        let down = url.contains("127.0.0.1:1/");
        let starter = Config::new("").leaf("leaf", &bed.leaf.url(), "").sidecar();
        let starter = starter
            .environment("DATABASE_URL", &url)
            .environment(LOG_LEVEL, LOUD);
        for command in [
            &["check"] as &[&str],
            &["check", "--json"],
            &["calls"],
            &["show", "1"],
        ] {
            let said = said_by(&starter, command).await;
            assert!(!said.is_empty());
            assert_no_piece(&command.join(" "), &said);
        }
        let mut sidecar = starter.launch();
        if down {
            until("it says what is wrong", async || {
                let said = text_of(&sidecar);
                if said.contains("no connection") {
                    Ok(())
                } else {
                    Err(said)
                }
            })
            .await;
        } else {
            sidecar.until_ready().await;
            let id = bed.app.insert(to("leaf", "a")).await;
            bed.app.until_state(id, "confirmed").await;
            let broken = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
            );
            bed.app.rows(&broken).await;
            sidecar.until_ready().await;
        }
        sidecar.stop().await;
        assert_no_piece("the log", &text_of(&sidecar));
    }
    bed.app.execute(&format!("DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_connection_string_that_can_t_be_read_is_shown_nowhere() {
    let raw = awkward_password();
    let encoded = encoded(&raw);
    let at = "127.0.0.1:1";
    let shapes = [
        format!("postgres://u:{raw}@{at}/d"),
        format!("postgres://u:{raw}"),
        format!("postgres:/u:{encoded}@{at}/d"),
        format!("postgres//u:{encoded}@{at}/d"),
        raw.clone(),
        encoded.clone(),
        format!("mysql://u:{encoded}@{at}/d"),
        format!("jdbc:postgresql://{at}/d?user=u&password={encoded}"),
        format!("postgres://u:{encoded}%zz@{at}/d"),
        format!("postgres://u:{encoded}%ff@{at}/d"),
        format!("postgres://u:{encoded}@127.0.0.1:{encoded}/d"),
        format!("postgres://u:{encoded}@[::1/d"),
        format!("postgres://{at}/d?pasword={encoded}"),
        format!("postgres://{at}/d?password={encoded}&{encoded}"),
        format!("postgres://u:{encoded}@{at}/d?sslmode={encoded}"),
        format!("postgres://u:{encoded}@{at}/d?connect_timeout={encoded}"),
        format!("host=127.0.0.1 port=1 user=u password={raw}"),
        format!("host=127.0.0.1 port=1 user=u password='{raw}"),
        format!("host=127.0.0.1 port={encoded} user=u"),
        format!("host=127.0.0.1 password={encoded} {encoded}=x"),
    ];
    let mut files = shapes
        .iter()
        .map(|url| format!("[database]\nurl = {url:?}\n"))
        .collect::<Vec<_>>();
    // No TOML: the line that is broken is the one with the password.
    files.push(format!(
        "[database]\nurl = \"postgres://u:{encoded}@{at}/d\n"
    ));
    files.push(format!("[database]\nurl = 'postgres://u:{raw}@{at}/d'\n"));
    files.push(format!("[database]\nurl = postgres://u:{encoded}@{at}/d\n"));
    files.push(format!(
        "database.url = \"a\"\ndatabase.url = \"postgres://u:{encoded}@{at}/d\"\n"
    ));
    files.push(format!(
        "[database]\nurl = [\"postgres://u:{encoded}@{at}/d\"]\n"
    ));
    let starters = shapes
        .iter()
        .map(|url| Config::new("").sidecar().environment("DATABASE_URL", url))
        .chain(files.iter().map(|text| {
            let starter = Config::new("").sidecar();
            starter.rewrite_text(text);
            starter
        }));
    for (starter, shape) in starters.zip(shapes.iter().chain(&files)) {
        let starter = starter.environment(LOG_LEVEL, LOUD);
        for command in [
            &["run"] as &[&str],
            &["check"],
            &["check", "--json"],
            &["calls"],
        ] {
            let output = starter.command(command).await;
            let said =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
            let said = said.concat();
            assert_eq!(output.status.code(), Some(1), "{shape}: {said}");
            assert!(!said.is_empty());
            assert_no_piece(&format!("{} with {shape}", command.join(" ")), &said);
        }
    }
}
