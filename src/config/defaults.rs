//! The defaults, as `deploy/leafhopper.default.toml` documents them.

/// The documented defaults, as they are written.
const DEFAULTS: &str = include_str!("../../deploy/leafhopper.default.toml");

/// The name that a leaf has in the defaults.
pub(super) const LEAF: &str = "example";

/// The defaults with those of the optional tables: lines such as `#timeout = "30s"` are taken in.
pub(super) fn text() -> String {
    uncomment(&["#"])
}

/// The defaults without the comment signs `signs`, where a setting or a table follows.
pub(super) fn uncomment(signs: &[&str]) -> String {
    let mut text = String::with_capacity(DEFAULTS.len());
    for line in DEFAULTS.lines() {
        let setting = signs
            .iter()
            .filter_map(|sign| line.strip_prefix(sign))
            .find(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '['));
        text.push_str(setting.unwrap_or(line));
        text.push('\n');
    }
    text
}
