//! Malformed files: what is written, the key that is named, and a part of what is said about it.

/// Settings of `leaf.git`, each wrong in exactly one way.
pub(super) const LEAF: &[(&str, &str, &str)] = &[
    (
        "timeout = 30",
        "timeout",
        "30 has no unit; write a duration",
    ),
    ("timeout = \"30\"", "timeout", "\"30\" is not a duration"),
    ("timeout = \"0s\"", "timeout", "is zero"),
    ("timeout = \"1 month\"", "timeout", "no fixed length"),
    ("timeout = \"-5s\"", "timeout", "negative"),
    ("timeout = true", "timeout", "is a boolean"),
    (
        "timeuot = \"30s\"",
        "timeuot",
        "unknown key; did you mean `timeout`?",
    ),
    (
        "zzz = 1",
        "zzz",
        "unknown key; known here: after_failed_head, auth",
    ),
    ("signing = {}", "signing.secret", "missing; use { env"),
    (
        "signing = { secret = \"whsec_x\" }",
        "signing.secret",
        "is not written into this file",
    ),
    (
        "signing = { secret = { env = \"TOKEN\" } }",
        "signing.secret",
        "does not begin with whsec_",
    ),
    (
        "signing = { secret = { env = \"WEBHOOK\" }, header = \"X-Sig\" }",
        "signing.header",
        "has names of its own",
    ),
    (
        "signing = { secret = { env = \"WEBHOOK\" }, format = \"hex\" }",
        "signing.header",
        "missing; write what the leaf calls it",
    ),
    (
        "signing = { secret = { env = \"WEBHOOK\" }, format = \"sha256\" }",
        "signing.format",
        "is not one of standard-webhooks, sha256=hex, hex, base64",
    ),
    (
        "signing = { secret = { env = \"WEBHOOK\" }, scheme = \"hex\" }",
        "signing.scheme",
        "unknown key",
    ),
    (
        "signing = { secret = { env = \"TOKEN\" }, format = \"hex\", header = \"Authorization\" }\n\
         auth = { bearer = { env = \"TOKEN\" } }",
        "signing",
        "\"authorization\" is the one that `auth` uses",
    ),
    (
        "signing = { secret = { env = \"TOKEN\" }, format = \"hex\", header = \"X-Key\" }\n\
         idempotency = { header = \"x-key\", window = \"1h\" }",
        "signing",
        "\"x-key\" is the one that `idempotency` uses",
    ),
    (
        "signing = { secret = { env = \"WEBHOOK\" } }\n\
         idempotency = { header = \"webhook-id\", window = \"1h\", format = \"quoted\" }",
        "signing",
        "is not quoted when it is signed",
    ),
    (
        "connect_timeout = \"31s\"",
        "connect_timeout",
        "longer than timeout",
    ),
    ("concurrency = 0", "concurrency", "0 is out of range; 1 to"),
    ("concurrency = 1.5", "concurrency", "an integer is wanted"),
    ("rate = \"0/s\"", "rate", "would never send"),
    ("rate = \"50\"", "rate", "\"50\" is not a rate"),
    ("rate = \"50/d\"", "rate", "\"5000/h\""),
    (
        "max_response_bytes = \"1MB\"",
        "max_response_bytes",
        "\"1MiB\"",
    ),
    (
        "max_response_bytes = 5",
        "max_response_bytes",
        "5 has no unit",
    ),
    (
        "max_response_bytes = \"0B\"",
        "max_response_bytes",
        "out of range",
    ),
    ("exists_on = [409]", "exists_on", "needs [leaf.git.probe]"),
    ("exists_on = [99]", "exists_on", "99 is no HTTP status"),
    (
        "outcome = { 404 = \"exists\" }",
        "outcome",
        "needs [leaf.git.probe]",
    ),
    (
        "outcome = { 404 = \"ok\" }",
        "outcome.404",
        "not one of confirmed, retry",
    ),
    (
        "outcome = { 4xx = \"retry\" }",
        "outcome.4xx",
        "is no HTTP status",
    ),
    (
        "exists_on = [409]\noutcome = { 409 = \"retry\" }\nprobe = { path = \"/x\" }",
        "outcome",
        "named by exists_on too",
    ),
    ("in_doubt = \"prob\"", "in_doubt", "did you mean \"probe\"?"),
    (
        "in_doubt = \"resend\"",
        "in_doubt",
        "a POST would happen twice",
    ),
    ("retry = { jitter = -0.1 }", "retry.jitter", "0 to 1"),
    (
        "retry = { jitter = nan }",
        "retry.jitter",
        "not a finite number",
    ),
    (
        "retry = { multiplier = 0.5 }",
        "retry.multiplier",
        "delays would shrink",
    ),
    (
        "retry = { initial = \"1h\" }",
        "retry.initial",
        "longer than max",
    ),
    (
        "retry = { max_attempts = 0 }",
        "retry.max_attempts",
        "out of range",
    ),
    ("retry = 3", "retry", "a table is wanted"),
    (
        "keep_headers = [\"a b\"]",
        "keep_headers",
        "not a header's name",
    ),
    ("http2 = \"yes\"", "http2", "not one of auto, always, never"),
    (
        "after_failed_head = \"stop\"",
        "after_failed_head",
        "continue, hold",
    ),
    (
        "verdict = \"call.key\"",
        "verdict",
        "`call` is not known here",
    ),
    ("tls = { ca = \"/none.pem\" }", "tls.ca", "/none.pem"),
    (
        "tls = { cert = \"tests/fixtures/tls/ca.pem\" }",
        "tls",
        "only make sense together",
    ),
    ("proxy = \"http://u:hunter2@p\"", "proxy", "has a user part"),
    (
        "proxy_auth = { user = \"me\", password = { env = \"TOKEN\" } }",
        "proxy_auth",
        "needs `proxy`",
    ),
    (
        "proxy = \"http://p\"\nproxy_auth = { user = \"me:\", password = { env = \"TOKEN\" } }",
        "proxy_auth.user",
        "no colon",
    ),
    (
        "proxy = \"http://p\"\nproxy_auth = { user = \"me\" }",
        "proxy_auth.password",
        "missing",
    ),
    (
        "private_addresses = \"no\"",
        "private_addresses",
        "allow, refuse",
    ),
    (
        "private_addresses = \"refuse\"\nproxy = \"http://p\"",
        "private_addresses",
        "let the proxy refuse",
    ),
    (
        "probe = { method = \"POST\", path = \"/x\" }",
        "probe.method",
        "GET, HEAD",
    ),
    ("probe = {}", "probe.path", "missing"),
    (
        "probe = { path = \"x\" }",
        "probe.path",
        "start with one `/`",
    ),
    (
        "probe = { path = \"/{{ call.\" }",
        "probe.path",
        "does not compile",
    ),
    (
        "probe = { path = \"/{{ cal.id }}\" }",
        "probe.path",
        "`cal` is not known here",
    ),
    (
        "probe = { path = \"/\", found = \"a b\" }",
        "probe.found",
        "does not compile",
    ),
    (
        "probe = { path = \"/\", settle = \"x\" }",
        "probe.settle",
        "not a duration",
    ),
    (
        "probe = { method = \"HEAD\", path = \"/\", found = \"response.body\" }",
        "probe.found",
        "use method = \"GET\"",
    ),
    (
        "compensate = { path = \"/x\" }",
        "compensate.method",
        "missing",
    ),
    (
        "compensate = { method = \"PUT\", path = \"/\", body = { a = [\"{{ reslt }}\"] } }",
        "compensate.body",
        "`reslt` is not known here; there is call and result",
    ),
    (
        "idempotency = { window = \"1h\" }",
        "idempotency.header",
        "missing",
    ),
    (
        "idempotency = { header = \"K\" }",
        "idempotency.window",
        "missing",
    ),
    (
        "idempotency = { header = \"K\", window = \"29s\" }",
        "idempotency",
        "shorter than timeout",
    ),
    (
        "idempotency = { header = \"Host\", window = \"1h\" }",
        "idempotency.header",
        "frames the message",
    ),
    (
        "auth = { bearer = { env = \"TOKEN\" } }\n\
         idempotency = { header = \"Authorization\", window = \"1h\" }",
        "idempotency",
        "the one that `auth` uses",
    ),
    ("auth = {}", "auth", "write one of { bearer"),
    (
        "auth = { header = { name = \"Transfer-Encoding\", value = { env = \"TOKEN\" } } }",
        "auth.header.name",
        "frames the message",
    ),
    (
        "auth = { header = { name = \"X\" } }",
        "auth.header.value",
        "missing",
    ),
    (
        "auth = { basic = { user = \"a:b\", password = { env = \"TOKEN\" } } }",
        "auth.basic.user",
        "no colon",
    ),
    (
        "credentials = { dir = \"/tmp\" }",
        "credentials",
        "needs `auth`",
    ),
    (
        "auth = { bearer = { env = \"TOKEN\" } }\ncredentials = { dir = \"/none\" }",
        "credentials.dir",
        "not a folder",
    ),
];

/// Whole files.
pub(super) const OTHERS: &[(&str, &str, &str)] = &[
    ("[database]", "database.url", "missing"),
    ("[database]\nurl = 5", "database.url", "a table is wanted"),
    (
        "[database]\npool_size = 1001",
        "database.pool_size",
        "1 to 1000",
    ),
    (
        "[listen]\naddress = \"9187\"",
        "listen.address",
        "is not an address",
    ),
    (
        "[listen]\nhosts = [\"ops.example.com:9187\"]",
        "listen.hosts",
        "ops.example.com:9187",
    ),
    (
        "[listen]\nshow_bodies = 1",
        "listen.show_bodies",
        "true or false",
    ),
    (
        "[dispatch]\nlease = \"500ms\"",
        "dispatch.lease",
        "1s to 10m",
    ),
    ("[dispatch]\nlease = \"11m\"", "dispatch.lease", "1s to 10m"),
    (
        "[dispatch]\npoll_interval = \"30s\"",
        "dispatch.poll_interval",
        "not shorter",
    ),
    (
        "[dispatch]\nstuck_after = \"0s\"",
        "dispatch.stuck_after",
        "is zero",
    ),
    (
        "[dispatch]\nstate_dir = \"/none\"",
        "dispatch.state_dir",
        "not a folder",
    ),
    (
        "[retention]\nresults = \"never\"",
        "retention.results",
        "\"forever\"",
    ),
    (
        "[retention]\nresults = \"60d\"\nresult_bodies = \"61d\"",
        "retention.result_bodies",
        "longer than retention.results",
    ),
    (
        "[retention]\nactions = \"0s\"",
        "retention.actions",
        "is zero",
    ),
    (
        "[retention]\nresults = \"23h\"\n[leaf.pay]\nbase_url = \"https://pay.example.com\"\n\
         [leaf.pay.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"24h\"",
        "retention.results",
        "is shorter than leaf.pay.idempotency.window (24h)",
    ),
    (
        "[retention]\nfinished = \"23h\"\n[leaf.pay]\nbase_url = \"https://pay.example.com\"\n\
         [leaf.pay.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"24h\"\nreplays = \"all\"",
        "retention.finished",
        "is shorter than leaf.pay.idempotency.window (24h)",
    ),
    ("[retry]\nmultiplier = 0", "retry.multiplier", "less than 1"),
    ("[leafs.git]", "leafs", "did you mean `leaf`?"),
    ("leaf = 1", "leaf", "a table is wanted"),
    (
        "[leaf]\ngit = 1",
        "leaf.git",
        "a table [leaf.git] is wanted",
    ),
    (
        "[leaf.\"(unknown)\"]\nbase_url = \"http://x\"",
        "leaf.(unknown)",
        "no name of a leaf",
    ),
    (
        "[leaf.Git]\nbase_url = \"http://x\"",
        "leaf.Git",
        "no name of a leaf",
    ),
    ("[leaf.a]", "leaf.a.base_url", "missing"),
    (
        "[leaf.a]\nbase_url = \"x\"",
        "leaf.a.base_url",
        "\"x\" is not a URL",
    ),
    (
        "[leaf.a]\nbase_url = \"ftp://x\"",
        "leaf.a.base_url",
        "neither an http",
    ),
    (
        "[leaf.a]\nbase_url = \"http://x?q\"",
        "leaf.a.base_url",
        "has a query",
    ),
    (
        "[leaf.a]\nbase_url = \"http://x#f\"",
        "leaf.a.base_url",
        "has a fragment",
    ),
    (
        "[leaf.a]\nbase_url = \"http://u@x\"",
        "leaf.a.base_url",
        "has a user part",
    ),
    ("[leaf.a", "", "column 8: not TOML"),
    ("a = 1\na = 2", "", "not TOML: duplicate key"),
];
