//! Style, script and icon: compiled in, each under a name that changes with its content, so that a browser keeps it.

use std::sync::LazyLock;

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};

use super::render::hash_of;
use crate::surface::{Surface, problem::Problem};

/// A file that the page loads.
#[derive(Debug)]
pub(super) struct Asset {
    content: &'static str,
    content_type: &'static str,
    path: String,
}

impl Asset {
    fn new(name: &str, kind: &str, content: &'static str, content_type: &'static str) -> Self {
        let hash = hash_of(content.as_bytes());
        Self {
            content,
            content_type,
            path: format!("/assets/{name}.{hash}.{kind}"),
        }
    }

    /// Where it is served.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

pub(super) static CSS: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("static/page.css");
    Asset::new("page", "css", content, "text/css; charset=utf-8")
});

pub(super) static JS: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("static/page.js");
    Asset::new("page", "js", content, "text/javascript; charset=utf-8")
});

pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("static/icon.svg");
    Asset::new("icon", "svg", content, "image/svg+xml")
});

/// `/assets/…`: open to everybody, since the login has a style, too.
pub(super) fn routes() -> Router<Surface> {
    Router::new().route("/assets/{name}", get(asset))
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let path = format!("/assets/{name}");
    let known = [&*CSS, &*JS, &*ICON];
    let Some(asset) = known.into_iter().find(|asset| asset.path == path) else {
        let detail = "there is no such file; the page names those of its own version";
        return Problem::new(StatusCode::NOT_FOUND, detail).into_response();
    };
    let tag = format!("\"{}\"", hash_of(asset.content.as_bytes()));
    let same = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|tags| tags.as_bytes() == tag.as_bytes());
    let headers = [
        (header::CONTENT_TYPE, asset.content_type.to_owned()),
        (
            header::CACHE_CONTROL,
            "public, max-age=31536000, immutable".to_owned(),
        ),
        (header::ETAG, tag),
    ];
    if same {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        (headers, asset.content).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The colours of a scheme by their names in the style sheet.
    fn colours(block: &str) -> BTreeMap<&str, [f64; 3]> {
        let lines = block.lines().filter_map(|line| {
            let (name, value) = line.trim().strip_prefix("--")?.split_once(": #")?;
            let part = |at: usize| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
            let parts = [part(0)?, part(2)?, part(4)?];
            Some((name, parts.map(f64::from)))
        });
        lines.collect()
    }

    /// Relative luminance (WCAG 2.2).
    fn luminance(colour: [f64; 3]) -> f64 {
        let [red, green, blue] = colour.map(|part| {
            let part = part / 255.0;
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    #[test]
    fn every_text_has_enough_contrast_in_both_schemes() {
        let schemes: Vec<&str> = CSS
            .content
            .split(":root {")
            .skip(1)
            .filter_map(|block| block.split('}').next())
            .collect();
        assert_eq!(schemes.len(), 2);
        let states = ["good", "moving", "waiting", "doubt", "bad", "over"];
        let mut pairs: Vec<(String, String)> = states
            .map(|state| (state.to_owned(), format!("{state}-back")))
            .into();
        for text in ["ink", "quiet", "accent", "bad", "doubt", "moving"] {
            for ground in ["ground", "sheet", "sunken"] {
                pairs.push((text.to_owned(), ground.to_owned()));
            }
        }
        for (text, ground) in [
            ("on-accent", "accent"),
            ("sheet", "bad"),
            ("ink", "bad-back"),
            ("ink", "doubt-back"),
        ] {
            pairs.push((text.to_owned(), ground.to_owned()));
        }
        for scheme in schemes {
            let colours = colours(scheme);
            for (text, ground) in &pairs {
                let [text_light, ground_light] =
                    [text, ground].map(|name| luminance(colours[name.as_str()]));
                let lighter = text_light.max(ground_light) + 0.05;
                let darker = text_light.min(ground_light) + 0.05;
                let ratio = lighter / darker;
                assert!(ratio >= 4.5, "{text} on {ground}: {ratio:.2}");
            }
        }
    }
}
