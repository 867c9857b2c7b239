//! What the services answer, as their documentation shows it, cut down to what matters; KEY stands for the effect key.

/// One recipe, with the answers of its service.
pub(super) struct Recipe {
    /// The file of `deploy/leaves`.
    pub(super) toml: &'static str,
    /// Its leaf.
    pub(super) leaf: &'static str,
    /// The `base_url` in it.
    pub(super) url: &'static str,
    /// The variable that holds its secret.
    pub(super) secret: &'static str,
    /// The effect key of its example.
    pub(super) key: &'static str,
    /// Where a create goes.
    pub(super) create: &'static str,
    /// The answer to it.
    pub(super) created: (u16, &'static str),
    /// Where a probe goes, with the query.
    pub(super) probe: &'static str,
    /// The answer where the call's own thing is there.
    pub(super) found: &'static str,
    /// The answer where somebody else's is.
    pub(super) theirs: &'static str,
    /// The answer where nothing is.
    pub(super) absent: (u16, &'static str),
    /// The answer to a create of what exists; nothing where it makes another.
    pub(super) exists: Option<(u16, &'static str)>,
    /// Method, path and body of what undoes it.
    pub(super) undo: (&'static str, &'static str, Option<&'static str>),
    /// The answer to that.
    pub(super) undone: (u16, &'static str),
}

const REPO: &str = r#"{"id": 1296269, "name": "site-42", "full_name": "acme/site-42", "private": true,
    "owner": {"login": "acme", "id": 1}, "description": "The site of Ada [KEY]"}"#;
const THEIR_REPO: &str = r#"{"id": 1296269, "name": "site-42", "full_name": "acme/site-42", "private": true,
    "owner": {"login": "acme", "id": 1}, "description": null}"#;

pub(super) const GITHUB: Recipe = Recipe {
    toml: include_str!("../../../deploy/leaves/github.toml"),
    leaf: "github-repos",
    url: "https://api.github.com",
    secret: "GITHUB_TOKEN",
    key: "site:42:repo",
    create: "/orgs/acme/repos",
    created: (201, REPO),
    probe: "/repos/acme/site-42",
    found: REPO,
    theirs: THEIR_REPO,
    absent: (404, r#"{"message": "Not Found", "status": "404"}"#),
    exists: Some((
        422,
        r#"{"message": "Repository creation failed.", "errors": [{"resource": "Repository", "code": "custom",
            "field": "name", "message": "name already exists on this account"}]}"#,
    )),
    undo: ("DELETE", "/repos/acme/site-42", None),
    undone: (204, ""),
};

pub(super) const GITEA: Recipe = Recipe {
    toml: include_str!("../../../deploy/leaves/gitea.toml"),
    leaf: "gitea-repos",
    url: "https://git.example.com/api/v1",
    secret: "GITEA_AUTHORIZATION",
    exists: Some((
        409,
        r#"{"message": "The repository with the same name already exists.", "url": "https://git.example.com/api/swagger"}"#,
    )),
    absent: (404, r#"{"message": "not found", "errors": []}"#),
    ..GITHUB
};

pub(super) const GITLAB: Recipe = Recipe {
    toml: include_str!("../../../deploy/leaves/gitlab.toml"),
    leaf: "gitlab-projects",
    url: "https://gitlab.com/api/v4",
    secret: "GITLAB_TOKEN",
    key: "site:42:repo",
    create: "/projects",
    created: (
        201,
        r#"{"id": 4242, "name": "Site 42", "path": "site-42", "path_with_namespace": "acme/sites/site-42",
            "description": "The site of Ada [KEY]"}"#,
    ),
    probe: "/projects/acme%2Fsites%2Fsite-42",
    found: r#"{"id": 4242, "name": "Site 42", "path": "site-42", "path_with_namespace": "acme/sites/site-42",
        "description": "The site of Ada [KEY]", "marked_for_deletion_on": null}"#,
    // Made for the same key before, and undone.
    theirs: r#"{"id": 4241, "name": "Site 42", "path": "site-42", "path_with_namespace": "acme/sites/site-42",
        "description": "The site of Ada [KEY]", "marked_for_deletion_on": "2026-11-30"}"#,
    absent: (404, r#"{"message": "404 Project Not Found"}"#),
    exists: Some((
        400,
        r#"{"message": {"name": ["has already been taken"], "path": ["has already been taken"]}}"#,
    )),
    undo: ("DELETE", "/projects/4242", None),
    undone: (202, r#"{"message": "202 Accepted"}"#),
};

pub(super) const FORGE: Recipe = Recipe {
    toml: include_str!("../../../deploy/leaves/forge.toml"),
    leaf: "forge-sites",
    url: "https://forge.laravel.com/api",
    secret: "FORGE_TOKEN",
    key: "site:42:site",
    create: "/orgs/acme/servers/815/sites",
    created: (
        202,
        r#"{"data": {"id": "77", "type": "sites", "attributes": {"name": "42.example.com", "status": "installing"}}}"#,
    ),
    probe: "/orgs/acme/servers/815/sites?filter%5Bname%5D=42.example.com&include=tags",
    found: r#"{"data": [
            {"id": "76", "type": "sites", "attributes": {"name": "www.42.example.com"},
             "relationships": {"tags": {"data": []}}},
            {"id": "77", "type": "sites", "attributes": {"name": "42.example.com", "status": "installed"},
             "relationships": {"tags": {"data": [{"type": "tags", "id": "5"}, {"type": "tags", "id": "6"}]}}}],
        "included": [{"id": "5", "type": "tags", "attributes": {"name": "blue"}},
                     {"id": "6", "type": "tags", "attributes": {"name": "KEY"}}],
        "links": {}, "meta": {"per_page": 30}}"#,
    // The tag is another site's.
    theirs: r#"{"data": [
            {"id": "76", "type": "sites", "attributes": {"name": "www.42.example.com"},
             "relationships": {"tags": {"data": [{"type": "tags", "id": "6"}]}}},
            {"id": "77", "type": "sites", "attributes": {"name": "42.example.com"},
             "relationships": {"tags": {"data": [{"type": "tags", "id": "5"}]}}}],
        "included": [{"id": "5", "type": "tags", "attributes": {"name": "blue"}},
                     {"id": "6", "type": "tags", "attributes": {"name": "KEY"}}],
        "links": {}, "meta": {"per_page": 30}}"#,
    absent: (
        200,
        r#"{"data": [], "links": {}, "meta": {"per_page": 30}}"#,
    ),
    exists: Some((
        422,
        r#"{"message": "The name has already been taken.", "errors": {"name": ["The name has already been taken."]}}"#,
    )),
    undo: ("DELETE", "/orgs/acme/servers/815/sites/77", None),
    undone: (202, ""),
};

pub(super) const CLOUDFLARE: Recipe = Recipe {
    toml: include_str!("../../../deploy/leaves/cloudflare.toml"),
    leaf: "cloudflare-dns",
    url: "https://api.cloudflare.com/client/v4",
    secret: "CLOUDFLARE_TOKEN",
    key: "site:42:dns",
    create: "/zones/023e105f4ecef8ad9ca31a8372d0c353/dns_records",
    created: (
        200,
        r#"{"success": true, "errors": [], "messages": [],
            "result": {"id": "372e6795", "type": "A", "name": "42.example.com", "content": "192.0.2.42", "comment": "KEY"}}"#,
    ),
    probe: "/zones/023e105f4ecef8ad9ca31a8372d0c353/dns_records?comment.exact=KEY",
    found: r#"{"success": true, "errors": [], "result_info": {"count": 2}, "result": [
        {"id": "372e6794", "type": "A", "name": "41.example.com", "content": "192.0.2.41", "comment": "KEY-NOT"},
        {"id": "372e6795", "type": "A", "name": "42.example.com", "content": "192.0.2.42", "comment": "KEY"}]}"#,
    theirs: r#"{"success": true, "errors": [], "result_info": {"count": 1}, "result": [
        {"id": "372e6794", "type": "A", "name": "41.example.com", "content": "192.0.2.41", "comment": "KEY-NOT"}]}"#,
    absent: (
        200,
        r#"{"success": true, "errors": [], "result_info": {"count": 0}, "result": []}"#,
    ),
    exists: Some((
        400,
        r#"{"success": false, "errors": [{"code": 81058, "message": "An identical record already exists."}],
            "messages": [], "result": null}"#,
    )),
    undo: (
        "DELETE",
        "/zones/023e105f4ecef8ad9ca31a8372d0c353/dns_records/372e6795",
        None,
    ),
    undone: (200, r#"{"result": {"id": "372e6795"}}"#),
};

pub(super) const SLACK: Recipe = Recipe {
    toml: include_str!("../../../deploy/leaves/slack.toml"),
    leaf: "slack-messages",
    url: "https://slack.com/api",
    secret: "SLACK_BOT_TOKEN",
    key: "order:4711:shipped",
    create: "/chat.postMessage",
    created: (
        200,
        r#"{"ok": true, "channel": "C123ABC456", "ts": "1503435956.000247",
            "message": {"text": "Order 4711 is on its way", "type": "message", "ts": "1503435956.000247"}}"#,
    ),
    // `oldest` is of the moment.
    probe: "/conversations.history?channel=C123ABC456&oldest=",
    found: r#"{"ok": true, "has_more": true, "messages": [
        {"type": "message", "user": "U1", "text": "hello", "ts": "1503435957.000000"},
        {"type": "message", "user": "U3", "text": "built", "ts": "1503435956.900000",
         "metadata": {"event_type": "build", "event_payload": {"id": 7}}},
        {"type": "message", "user": "U2", "text": "Order 4711 is on its way", "ts": "1503435956.000247",
         "metadata": {"event_type": "leafhopper", "event_payload": {"key": "KEY"}}}]}"#,
    theirs: r#"{"ok": true, "has_more": false, "messages": [
        {"type": "message", "user": "U2", "text": "Order 4711 is on its way", "ts": "1503435956.000247",
         "metadata": {"event_type": "leafhopper", "event_payload": {"key": "another"}}}]}"#,
    absent: (200, r#"{"ok": true, "has_more": false, "messages": []}"#),
    exists: None,
    undo: (
        "POST",
        "/chat.delete",
        Some(r#"{"channel": "C123ABC456", "ts": "1503435956.000247"}"#),
    ),
    undone: (
        200,
        r#"{"ok": true, "channel": "C123ABC456", "ts": "1503435956.000247"}"#,
    ),
};

pub(super) const STRIPE: Recipe = Recipe {
    toml: include_str!("../../../deploy/leaves/stripe.toml"),
    leaf: "stripe-payments",
    url: "https://api.stripe.com/v1",
    secret: "STRIPE_SECRET_KEY",
    key: "order:4711:charge",
    create: "/payment_intents",
    created: (
        200,
        r#"{"id": "pi_3MtwBw", "object": "payment_intent", "amount": 4200, "status": "requires_capture",
            "metadata": {"leafhopper": "KEY"}}"#,
    ),
    probe: "/payment_intents/search?query=metadata%5B%22leafhopper%22%5D%3A%22KEY%22",
    found: r#"{"object": "search_result", "url": "/v1/payment_intents/search", "has_more": false, "data": [
        {"id": "pi_1", "object": "payment_intent", "status": "canceled", "metadata": {"leafhopper": "KEY"}},
        {"id": "pi_3MtwBw", "object": "payment_intent", "amount": 4200, "status": "requires_capture",
         "metadata": {"leafhopper": "KEY"}}]}"#,
    theirs: r#"{"object": "search_result", "url": "/v1/payment_intents/search", "has_more": false, "data": [
        {"id": "pi_2", "object": "payment_intent", "status": "succeeded", "metadata": {"leafhopper": "KEYS"}}]}"#,
    absent: (
        200,
        r#"{"object": "search_result", "url": "/v1/payment_intents/search", "has_more": false, "data": []}"#,
    ),
    exists: None,
    undo: ("POST", "/payment_intents/pi_3MtwBw/cancel", None),
    undone: (
        200,
        r#"{"id": "pi_3MtwBw", "object": "payment_intent", "status": "canceled"}"#,
    ),
};

pub(super) const WEBHOOK: &str = include_str!("../../../deploy/leaves/webhook.toml");
