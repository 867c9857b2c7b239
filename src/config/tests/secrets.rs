//! Tests of secrets: read, followed, and never shown.

use secrecy::ExposeSecret as _;

use super::*;

fn bearer(proofs: Result<Proofs, UnknownCredential>) -> String {
    match proofs.map(|proofs| proofs.auth) {
        Ok(Some(Auth::Bearer(token))) => token.expose_secret().to_owned(),
        other => panic!("not a bearer token: {other:?}"),
    }
}

#[test]
fn neither_debug_nor_the_dump_shows_a_secret() {
    let folder = Folder::new("redaction");
    folder.write("acme", "hunter2-acme");
    let text = format!(
        "[database]\nurl = \"postgres://u:hunter2-db@localhost/app\"\n\
         direct_url = {{ env = \"DIRECT\" }}\n\
         [listen]\nadmin_token = {{ env = \"ADMIN\" }}\n\
         [leaf.a]\nbase_url = \"https://x\"\nauth = {{ bearer = {{ env = \"A\" }} }}\n\
         credentials = {{ dir = \"{}\" }}\n\
         [leaf.b]\nbase_url = \"https://x\"\n\
         auth = {{ basic = {{ user = \"me\", password = {{ env = \"A\" }} }} }}\n\
         [leaf.c]\nbase_url = \"https://x\"\n\
         auth = {{ header = {{ name = \"X-Key\", value = {{ env = \"A\" }} }} }}",
        folder.path()
    );
    let env = [
        ("DIRECT", "postgres://u:hunter2%40direct@localhost/app"),
        ("ADMIN", "hunter2-of-the-admin"),
        ("A", "hunter2-a"),
    ];
    let config = parse_with(&text, &env).unwrap();
    for shown in [
        format!("{config:?}"),
        format!("{config:#?}"),
        config.warnings.join("\n"),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(config.warnings[0].starts_with("database.url: holds a password in clear"));
}

#[test]
fn a_url_that_is_refused_is_not_shown_where_it_can_hold_a_secret() {
    for url in [
        "bob:hunter2@proxy.example:3128",
        "http://bob:hunter2@proxy.example",
        "ftp://bob:hunter2@proxy.example",
        "//bob:hunter2@proxy.example",
        "https://x/y?api_key=hunter2",
        "x?api_key=hunter2",
        "ftp://x#hunter2",
        "https://x#hunter2",
    ] {
        for lines in [
            format!("base_url = {url:?}"),
            format!("base_url = \"https://x\"\nproxy = {url:?}"),
        ] {
            let said = parse_with(&format!("[leaf.a]\n{lines}"), &[]).unwrap_err();
            let said = format!("{said:#?} {said}");
            assert!(!said.contains("hunter2"), "{url}: {said}");
        }
    }
}

#[test]
fn a_secret_that_can_not_be_used_is_named_and_not_shown() {
    let folder = Folder::new("unusable");
    let empty = folder.write("empty", "\n");
    let two_lines = folder.write("two", "hunter2\nhunter2\n");
    let not_utf8 = folder.0.join("bytes");
    fs::write(&not_utf8, b"hunter2\xff").unwrap();
    for (secret, said) in [
        ("\"hunter2\"".to_owned(), "is not written into this file"),
        (
            "{ env = \"UNSET\" }".to_owned(),
            "variable UNSET is not set",
        ),
        ("{ env = \"EMPTY\" }".to_owned(), "variable EMPTY is empty"),
        (
            "{ env = \"hunter2\" }".to_owned(),
            "variable that is named here is not set",
        ),
        ("{ env = \"CONTROL\" }".to_owned(), "can't carry, at byte 8"),
        (
            "{ env = \"SPACE\" }".to_owned(),
            "begins or ends with a space",
        ),
        (format!("{{ file = \"{empty}\" }}"), "empty is empty"),
        (
            format!("{{ file = \"{two_lines}\" }}"),
            "can't carry, at byte 8",
        ),
        (
            format!("{{ file = \"{}\" }}", not_utf8.display()),
            "is not UTF-8",
        ),
        ("{ file = \"/none\" }".to_owned(), "/none can't be read"),
        ("{}".to_owned(), "names no place"),
        (
            "{ env = \"A\", file = \"/b\" }".to_owned(),
            "names two places",
        ),
        (
            "{ vault = \"hunter2\", env = \"EMPTY\" }".to_owned(),
            "unknown key",
        ),
    ] {
        let text = format!("[leaf.a]\nbase_url = \"https://x\"\nauth = {{ bearer = {secret} }}");
        let env = [
            ("DATABASE_URL", "postgres://localhost/app"),
            ("EMPTY", ""),
            ("CONTROL", "hunter2\u{7}"),
            ("SPACE", " hunter2"),
        ];
        let error = parse_with(&text, &env).unwrap_err().to_string();
        assert!(error.contains("leaf.a.auth.bearer"), "{error}");
        assert!(error.contains(said), "{secret} gives {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_url_that_can_not_be_read_is_not_shown() {
    for url in [
        "postgres://u:hunter2@h:x/app",
        "postgres://u:hunter2@x@h/app",
        "mysql://hunter2",
    ] {
        let in_file = parse_with(&format!("[database]\nurl = \"{url}\""), &[]);
        let in_env = parse_with("", &[("DATABASE_URL", url)]);
        for refused in [in_file, in_env] {
            let error = refused.unwrap_err();
            assert_eq!(error.faults[0].key, "database.url");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
    // A line that is not TOML is not quoted.
    let error = parse_with("[database]\nurl = \"postgres://u:hunter2@h", &[]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}

#[test]
fn secrets_follow_their_files() {
    let folder = Folder::new("refresh");
    let own = Folder::new("refresh-own");
    let token = own.write("token", "first\n");
    folder.write("acme", "acme-1\n");
    folder.write(".hidden", "no credential");
    fs::create_dir_all(folder.0.join("..data")).unwrap();
    let config = parse_leaf(&format!(
        "auth = {{ bearer = {{ file = \"{token}\" }} }}\ncredentials = {{ dir = \"{}\" }}",
        folder.path()
    ))
    .unwrap();
    let secrets = &config.leaves["git"].secrets;
    assert_eq!(bearer(secrets.proofs_for(None)), "first");
    assert_eq!(bearer(secrets.proofs_for(Some("acme"))), "acme-1");
    assert!(secrets.proofs_for(Some("other")).is_err());
    assert_eq!(secrets.refresh(), Refreshed::default());

    own.write("token", "later\n");
    folder.write("other", "other-1");
    let changed = Refreshed {
        changed: true,
        problems: Vec::new(),
    };
    assert_eq!(secrets.refresh(), changed);
    assert_eq!(bearer(secrets.proofs_for(None)), "later");
    assert_eq!(secrets.names(), ["acme", "other"]);

    // What can't be used any more leaves the former in force; what is gone is gone.
    own.write("token", "");
    folder.write("other", "two\nlines");
    fs::remove_file(folder.0.join("acme")).unwrap();
    let refreshed = secrets.refresh();
    assert!(refreshed.changed);
    assert_eq!(refreshed.problems.len(), 2, "{refreshed:?}");
    assert!(!format!("{refreshed:?}").contains("lines"));
    assert_eq!(bearer(secrets.proofs_for(None)), "later");
    assert_eq!(bearer(secrets.proofs_for(Some("other"))), "other-1");
    assert_eq!(secrets.names(), ["other"]);
}

#[test]
fn a_basic_password_is_followed() {
    let own = Folder::new("basic");
    let file = own.write("password", "one\r\n");
    let config = parse_leaf(&format!(
        "auth = {{ basic = {{ user = \"me\", password = {{ file = \"{file}\" }} }} }}"
    ))
    .unwrap();
    let secrets = &config.leaves["git"].secrets;
    let basic = || match secrets.proofs_for(None).map(|proofs| proofs.auth) {
        Ok(Some(Auth::Basic(pair))) => pair.expose_secret().to_owned(),
        other => panic!("not basic: {other:?}"),
    };
    assert_eq!(basic(), "me:one");
    own.write("password", "two");
    assert!(secrets.refresh().changed);
    assert_eq!(basic(), "me:two");
}

#[test]
fn a_credential_of_the_wrong_shape_is_a_fault() {
    let folder = Folder::new("shape");
    folder.write("acme", "hunter2-without-a-user");
    folder.write("a b", "x:y");
    let settings = format!(
        "auth = {{ basic = {{ user = \"me\", password = {{ env = \"TOKEN\" }} }} }}\n\
         credentials = {{ dir = \"{}\" }}",
        folder.path()
    );
    let error = parse_leaf(&settings).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.faults.len(), 2, "{text}");
    assert!(text.contains("acme: the secret is not of the form user:password"));
    assert!(text.contains("a b: a credential's name is made of"));
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_signing_secret_follows_its_file_and_its_name() {
    let (own, tokens, folder) = (
        Folder::new("signing-own"),
        Folder::new("signing-tokens"),
        Folder::new("signing-named"),
    );
    let file = own.write("secret", &format!("{WEBHOOK_SECRET}\n"));
    let acme = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    folder.write("acme", acme);
    let signing = format!(
        "signing = {{ secret = {{ file = \"{file}\" }}, credentials = {{ dir = \"{}\" }} }}",
        folder.path()
    );
    let signs = |secrets: &LeafSecrets, credential| {
        let signer = secrets.proofs_for(credential).unwrap().signer.unwrap();
        signer.secret.expose_secret().to_owned()
    };
    // Alone, and with a token that is the leaf's own for every name.
    for auth in ["", "\nauth = { bearer = { env = \"TOKEN\" } }"] {
        let config = parse_leaf(&format!("{signing}{auth}")).unwrap();
        let secrets = &config.leaves["git"].secrets;
        assert_eq!(signs(secrets, None), WEBHOOK_SECRET);
        assert_eq!(signs(secrets, Some("acme")), acme);
        assert!(secrets.proofs_for(Some("other")).is_err());
        assert_eq!(secrets.names(), ["acme"]);
    }
    // Where both have a folder, both have to know the name.
    for name in ["acme", "other"] {
        tokens.write(name, "t");
    }
    let config = parse_leaf(&format!(
        "{signing}\nauth = {{ bearer = {{ env = \"TOKEN\" }} }}\ncredentials = {{ dir = \"{}\" }}",
        tokens.path()
    ));
    let config = config.unwrap();
    let secrets = &config.leaves["git"].secrets;
    assert_eq!(secrets.names(), ["acme"]);
    assert!(secrets.proofs_for(Some("other")).is_err());

    let both = format!("{acme}\n{WEBHOOK_SECRET}");
    own.write("secret", &both);
    folder.write("other", "whsec_hunter2");
    let refreshed = secrets.refresh();
    assert!(refreshed.changed);
    assert_eq!(signs(secrets, None), both);
    assert_eq!(refreshed.problems.len(), 1, "{refreshed:?}");
    assert!(refreshed.problems[0].contains("other: what follows whsec_ is not Base64"));
    let shown = format!("{refreshed:?} {config:?}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("whsec_C2"),
        "{shown}"
    );
    own.write("secret", "");
    assert_eq!(secrets.refresh().problems.len(), 2);
    assert_eq!(signs(secrets, None), both);
}
