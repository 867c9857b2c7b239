//! `/search`: by id, batch, key, and by the app's own tags.
//!
//! Ids, batches and whole keys are found by their index. Tags and parts of keys have none, since each INSERT would pay
//! for it: a bounded number of calls is looked through, and the page says which.

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{
    lists::BatchLine,
    problem::{PageProblem, from_store},
    render,
    view::Line,
    visit::{Visit, percent},
};
use crate::{
    domain::call::CallId,
    store::{
        Store, StoreError,
        operator::{
            CallRow,
            list::{Filter, Order, Page},
        },
    },
    surface::Surface,
};

/// Of each kind so many are shown.
const FOUND: usize = 50;

/// Batches that begin alike, so many are shown.
const FEW: i64 = 20;

/// The query of `/search`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    q: String,
    before: Option<CallId>,
}

#[derive(Debug, Default, Serialize)]
struct SearchPage {
    q: String,
    /// By id or by key.
    named: Vec<Line>,
    batches: Vec<BatchLine>,
    /// By tags, or by a part of the key.
    like: Vec<Line>,
    /// How the text was read as tags.
    tags: Vec<String>,
    /// It looked back as far as this call.
    oldest: Option<CallId>,
    /// Calls were looked through, and there are older ones.
    more: bool,
    looked: bool,
    /// To look further back, or at all.
    further: Option<String>,
    /// Nothing was asked.
    blank: bool,
    /// A look further back.
    goes_on: bool,
    /// More were found than are shown.
    full: bool,
    /// The list of all calls of this key, where not all are shown.
    key_list: Option<String>,
}

/// `GET /search`
pub(super) async fn search(
    State(surface): State<Surface>,
    visit: Visit,
    Query(asked): Query<Asked>,
) -> Result<Response, PageProblem> {
    let q = asked.q.trim().to_owned();
    if q.is_empty() || q.contains('\0') {
        let page = SearchPage {
            blank: true,
            ..SearchPage::default()
        };
        return Ok(render::page(&visit, StatusCode::OK, "search.html", &page));
    }
    let page = find(&surface, &q, asked.before).await;
    let page = page.map_err(|error| from_store(&visit, error))?;
    // The only one there is: straight to it. A number is an id, and as likely a part of a key.
    match (page.named.as_slice(), page.batches.as_slice()) {
        ([call], []) if !page.looked && q.parse::<CallId>().is_err() => {
            Ok(Redirect::to(&format!("/calls/{}", call.id)).into_response())
        }
        ([], [batch]) if !page.looked => Ok(Redirect::to(&batch.path()).into_response()),
        _ => Ok(render::page(&visit, StatusCode::OK, "search.html", &page)),
    }
}

async fn find(
    surface: &Surface,
    q: &str,
    before: Option<CallId>,
) -> Result<SearchPage, StoreError> {
    let store = surface.people();
    let mut named: Vec<CallRow> = Vec::new();
    let mut batches = Vec::new();
    let mut more_of_key = false;
    if before.is_none() {
        let filter = Filter {
            key: Some(q.to_owned()),
            ..Filter::default()
        };
        let page = Page {
            order: Order::Newest,
            after: None,
            limit: FOUND + 1,
        };
        if let Ok(id) = q.parse::<CallId>() {
            named.extend(store.calls_by_id(&[id]).await?);
        }
        let mut of_key = store.calls(&filter, page).await?;
        more_of_key = of_key.len() > FOUND;
        of_key.truncate(FOUND);
        named.extend(of_key);
        let ids = match (q.parse::<Uuid>(), beginning(q)) {
            (Ok(batch), _) => vec![batch],
            (Err(_no_uuid), Some((from, to))) => store.batches_between(from, to, FEW).await?,
            (Err(_no_uuid), None) => Vec::new(),
        };
        if !ids.is_empty() {
            batches = store.batch_rows(&ids).await?;
        }
    }
    let mut page = SearchPage {
        q: q.to_owned(),
        named: named.iter().map(Line::of).collect(),
        batches: batches.iter().map(BatchLine::of).collect(),
        goes_on: before.is_some(),
        key_list: more_of_key.then(|| format!("/calls?key={}", percent(q))),
        ..SearchPage::default()
    };
    let back_to = |before: CallId| format!("/search?q={}&before={before}", percent(q));
    if named.is_empty() && batches.is_empty() {
        look(store, &mut page, before.unwrap_or(CallId::MAX)).await?;
        let further = page.oldest.filter(|_| page.more || page.full);
        // Live calls that are older than what was looked through are found, too: so it goes on no further back than that.
        let last = page.like.last().filter(|_| page.full).map(|call| call.id);
        let further = further.map(|oldest| last.map_or(oldest, |last| last.max(oldest)));
        page.further = further.map(back_to);
    } else {
        // What was meant is found; looking through the rest takes long.
        page.further = Some(back_to(CallId::MAX));
    }
    Ok(page)
}

/// The first and the last id that begin with these eight digits, as lists show ids in short.
fn beginning(q: &str) -> Option<(Uuid, Uuid)> {
    let first = u32::from_str_radix(q, 16).ok().filter(|_| q.len() == 8)?;
    let from = u128::from(first) << 96;
    Some((
        Uuid::from_u128(from),
        Uuid::from_u128(from | (u128::MAX >> 32)),
    ))
}

/// Looks through tags, or for a part of the key.
async fn look(store: &Store, page: &mut SearchPage, before: CallId) -> Result<(), StoreError> {
    page.tags = tags(&page.q);
    let key = page.tags.is_empty().then_some(page.q.as_str());
    let limit = i64::try_from(FOUND).unwrap_or(i64::MAX);
    let found = store.search(&page.tags, key, before, limit).await?;
    let mut like = store.calls_by_id(&found.ids).await?;
    like.reverse();
    page.like = like.iter().map(Line::of).collect();
    (page.oldest, page.more, page.looked) = (found.oldest, found.more, true);
    page.full = page.like.len() == FOUND;
    Ok(())
}

/// The JSON objects that a search for tags looks for: `{"customer": 42}` is one, `customer=42` two, since 42 may be a
/// number or a text.
fn tags(q: &str) -> Vec<String> {
    if let Ok(Value::Object(object)) = serde_json::from_str(q) {
        return vec![Value::Object(object).to_string()];
    }
    let Some((name, value)) = q.split_once('=') else {
        return Vec::new();
    };
    let (name, value) = (name.trim(), value.trim());
    let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || !name.chars().all(is_name) {
        return Vec::new();
    }
    let mut tags = vec![serde_json::json!({ name: value }).to_string()];
    if let Ok(value) = serde_json::from_str::<Value>(value)
        && !value.is_string()
    {
        tags.push(serde_json::json!({ name: value }).to_string());
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_are_the_beginning_of_a_batch() {
        let (from, to) = beginning("7c9e6679").expect("they are");
        let ends = [from.to_string(), to.to_string()];
        assert_eq!(
            ends,
            [
                "7c9e6679-0000-0000-0000-000000000000",
                "7c9e6679-ffff-ffff-ffff-ffffffffffff"
            ]
        );
        assert_eq!((beginning("7c9e667"), beginning("order:47")), (None, None));
    }

    #[test]
    fn tags_are_read_as_a_person_writes_them() {
        assert_eq!(
            tags("customer=42"),
            [r#"{"customer":"42"}"#, r#"{"customer":42}"#]
        );
        assert_eq!(tags("name = ada"), [r#"{"name":"ada"}"#]);
        assert_eq!(tags(r#"{"a": {"b": [1]}}"#), [r#"{"a":{"b":[1]}}"#]);
        assert_eq!(tags("order:4711:charge"), [] as [String; 0]);
        assert_eq!(tags("/x?a=b"), [] as [String; 0]);
        assert_eq!(tags("42"), [] as [String; 0]);
    }
}
