//! Lists of calls, a page at a time.
//!
//! A list first finds candidates where they are few, then asks the view for these alone: reasons and
//! stuckness are computed for a page, never for the history.

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{CallRow, PARKED_REASONS, PENDING_REASONS, column};
use crate::{
    domain::call::CallId,
    store::{Store, StoreError},
};

const OPERATION: &str = "list calls";

/// So many candidates are looked at in one statement. Large enough that a sparse list needs few of them,
/// small enough that none takes long.
const CHUNK: usize = 1000;

/// For one page that somebody waits for about so many candidates are looked at.
pub const LOOKED: usize = 20_000;

/// A look at fewer costs no less.
const LOOK_MIN: usize = 50;

/// The states that have a row in `dispatch`.
const LIVE: &[&str] = &["pending", "dispatching", "accepted", "in_doubt", "parked"];

/// Which calls. All that is given must hold; nothing given means all. A job keeps it as JSON, and what is not understood
/// of that is refused: without it, more calls would be meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// These ids alone; empty means any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<CallId>,
    /// One of [`super::STATES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The leaf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// The effect key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Uuid>,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only stuck ones.
    #[serde(skip_serializing_if = "is_false")]
    pub stuck: bool,
    /// Only those that undo the effects of others.
    #[serde(skip_serializing_if = "is_false")]
    pub compensations: bool,
    /// Only those that ended without a confirmation and hold those behind them.
    #[serde(skip_serializing_if = "is_false")]
    pub holds_others: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Which way a list runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The highest id first.
    #[default]
    Newest,
    /// The lowest id first.
    Oldest,
}

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Which way.
    pub order: Order,
    /// The last id of the page before.
    pub after: Option<CallId>,
    /// At most so many.
    pub limit: usize,
}

/// Where a list's candidates come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Named,
    Tracked { live: bool, ended: bool },
    Heads,
    All,
}

impl Filter {
    fn source(&self) -> Source {
        if self.key.is_some() || self.batch.is_some() {
            return Source::Named;
        }
        if self.holds_others {
            return Source::Heads;
        }
        if self.stuck {
            return Source::Tracked {
                live: true,
                ended: false,
            };
        }
        match (self.state.as_deref(), self.reason.as_deref()) {
            (Some("confirmed"), _) | (None, None) | (_, Some("untracked")) => Source::All,
            (Some(state), _) => Source::Tracked {
                live: LIVE.contains(&state),
                ended: !LIVE.contains(&state),
            },
            (None, Some(reason)) => {
                let only_live = state_of(reason).is_some();
                Source::Tracked {
                    live: only_live || reason == "attempts_exhausted",
                    ended: !only_live,
                }
            }
        }
    }

    /// The state to look for: the one that is asked for, or that the reason implies.
    fn state_sought(&self) -> Option<&str> {
        self.state
            .as_deref()
            .or_else(|| self.reason.as_deref().and_then(state_of))
    }
}

/// The only state that has this reason, where it is a live one.
fn state_of(reason: &str) -> Option<&'static str> {
    if PENDING_REASONS.contains(&reason) {
        Some("pending")
    } else if PARKED_REASONS.contains(&reason) && reason != "attempts_exhausted" {
        Some("parked")
    } else {
        None
    }
}

impl Page {
    fn start(&self) -> CallId {
        self.after.unwrap_or(match self.order {
            Order::Newest => CallId::MAX,
            Order::Oldest => CallId::MIN,
        })
    }

    fn comes_after(&self, id: CallId, start: CallId) -> bool {
        match self.order {
            Order::Newest => id < start,
            Order::Oldest => id > start,
        }
    }
}

impl Store {
    /// A page of the calls that match.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn calls(&self, filter: &Filter, page: Page) -> Result<Vec<CallRow>, StoreError> {
        let (found, _) = self.calls_among(filter, page, usize::MAX).await?;
        Ok(found)
    }

    /// As [`Self::calls`], but looks through no more than about so many that could match. Where it gives up before the
    /// page is full, the second value is the call behind which to go on.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn calls_among(
        &self,
        filter: &Filter,
        page: Page,
        most: usize,
    ) -> Result<(Vec<CallRow>, Option<CallId>), StoreError> {
        let mut found = Vec::new();
        let mut after = page.start();
        let mut looked = 0;
        let mut given_up = None;
        while found.len() < page.limit {
            let candidates = self.candidates(filter, page, after, CHUNK).await?;
            let Some(last) = candidates.last().copied() else {
                break;
            };
            // The first look takes no more than is asked for: mostly all of it matches. Where little does,
            // the next ones are larger.
            let mut rest = candidates.as_slice();
            let mut size = page.limit.clamp(LOOK_MIN, CHUNK);
            while found.len() < page.limit && !rest.is_empty() {
                let (part, later) = rest.split_at(size.min(rest.len()));
                found.extend(self.rows(filter, page.order, part).await?);
                rest = later;
                size = CHUNK;
            }
            if candidates.len() < CHUNK {
                break;
            }
            after = last;
            looked += candidates.len();
            if looked >= most {
                given_up = Some(last).filter(|_| found.len() < page.limit);
                break;
            }
        }
        found.truncate(page.limit);
        Ok((found, given_up))
    }

    /// These calls, by id, whatever they are like. Ids that don't exist are left out.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn calls_by_id(&self, ids: &[CallId]) -> Result<Vec<CallRow>, StoreError> {
        self.rows(&Filter::default(), Order::Oldest, ids).await
    }

    async fn candidates(
        &self,
        filter: &Filter,
        page: Page,
        after: CallId,
        limit: usize,
    ) -> Result<Vec<CallId>, StoreError> {
        if !filter.ids.is_empty() {
            let mut ids = filter.ids.clone();
            ids.retain(|id| page.comes_after(*id, after));
            ids.sort_unstable();
            ids.dedup();
            if page.order == Order::Newest {
                ids.reverse();
            }
            ids.truncate(limit);
            return Ok(ids);
        }
        let newest = page.order == Order::Newest;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = match filter.source() {
            Source::Named => {
                self.query(
                    OPERATION,
                    include_str!("../../../sql/queries/list_named.sql"),
                    &[
                        (&filter.batch, Type::UUID),
                        (&filter.key, Type::TEXT),
                        (&filter.leaf, Type::TEXT),
                        (&after, Type::INT8),
                        (&newest, Type::BOOL),
                        (&limit, Type::INT8),
                    ],
                )
                .await?
            }
            Source::Tracked { live, ended } => {
                self.query(
                    OPERATION,
                    include_str!("../../../sql/queries/list_tracked.sql"),
                    &[
                        (&live, Type::BOOL),
                        (&ended, Type::BOOL),
                        (&filter.state_sought(), Type::TEXT),
                        (&filter.leaf, Type::TEXT),
                        (&after, Type::INT8),
                        (&newest, Type::BOOL),
                        (&limit, Type::INT8),
                        (&filter.reason, Type::TEXT),
                    ],
                )
                .await?
            }
            Source::Heads => {
                self.query(
                    OPERATION,
                    include_str!("../../../sql/queries/list_heads.sql"),
                    &[
                        (&filter.leaf, Type::TEXT),
                        (&after, Type::INT8),
                        (&newest, Type::BOOL),
                        (&limit, Type::INT8),
                    ],
                )
                .await?
            }
            Source::All => {
                self.query(
                    OPERATION,
                    include_str!("../../../sql/queries/list_all.sql"),
                    &[
                        (&filter.leaf, Type::TEXT),
                        (&after, Type::INT8),
                        (&newest, Type::BOOL),
                        (&limit, Type::INT8),
                    ],
                )
                .await?
            }
        };
        rows.iter()
            .map(|row| column(OPERATION, row, "id"))
            .collect()
    }

    async fn rows(
        &self,
        filter: &Filter,
        order: Order,
        ids: &[CallId],
    ) -> Result<Vec<CallRow>, StoreError> {
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/list_rows.sql"),
                &[
                    (&ids, Type::INT8_ARRAY),
                    (&filter.state, Type::TEXT),
                    (&filter.reason, Type::TEXT),
                    (&filter.stuck, Type::BOOL),
                    (&filter.leaf, Type::TEXT),
                    (&filter.key, Type::TEXT),
                    (&filter.batch, Type::UUID),
                    (&filter.compensations, Type::BOOL),
                    (&filter.holds_others, Type::BOOL),
                ],
            )
            .await?;
        let mut calls = rows
            .iter()
            .map(|row| CallRow::read(OPERATION, row))
            .collect::<Result<Vec<_>, _>>()?;
        if order == Order::Newest {
            calls.reverse();
        }
        Ok(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(state: Option<&str>, reason: Option<&str>) -> Source {
        Filter {
            state: state.map(str::to_owned),
            reason: reason.map(str::to_owned),
            ..Filter::default()
        }
        .source()
    }

    #[test]
    fn candidates_come_from_where_they_are_few() {
        let live = Source::Tracked {
            live: true,
            ended: false,
        };
        let ended = Source::Tracked {
            live: false,
            ended: true,
        };
        let both = Source::Tracked {
            live: true,
            ended: true,
        };
        assert_eq!(source(Some("parked"), None), live);
        assert_eq!(source(Some("failed"), Some("rejected")), ended);
        assert_eq!(source(None, Some("no_probe")), live);
        assert_eq!(source(None, Some("changed my mind")), ended);
        assert_eq!(source(None, Some("attempts_exhausted")), both);
        assert_eq!(source(Some("confirmed"), None), Source::All);
        assert_eq!(source(Some("pending"), Some("untracked")), Source::All);
        assert_eq!(source(None, None), Source::All);
    }

    #[test]
    fn a_page_goes_on_behind_the_last_one_in_its_own_direction() {
        let page = Page {
            order: Order::Newest,
            after: Some(7),
            limit: 10,
        };
        assert!(page.comes_after(6, page.start()) && !page.comes_after(7, page.start()));
        let page = Page {
            order: Order::Oldest,
            ..page
        };
        assert!(page.comes_after(8, page.start()) && !page.comes_after(7, page.start()));
    }
}
