//! Which calls: the parameters of a list, and the filter of an action on many.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::query::{limit, usual};
use crate::{
    domain::call::CallId,
    store::operator::list::{Filter, Order, Page},
};

/// A state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Pending,
    Dispatching,
    Accepted,
    InDoubt,
    Parked,
    Confirmed,
    Failed,
    Cancelled,
    Expired,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Dispatching => "dispatching",
            Self::Accepted => "accepted",
            Self::InDoubt => "in_doubt",
            Self::Parked => "parked",
            Self::Confirmed => "confirmed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }
}

/// Which calls. All that is given has to hold.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CallFilter {
    /// Only calls in this state.
    pub(super) state: Option<State>,
    /// Only calls for this leaf.
    leaf: Option<String>,
    /// Only calls with this effect key.
    key: Option<String>,
    /// Only calls of this batch.
    batch: Option<Uuid>,
    /// Only calls with this reason: `no_probe`, `leaf_paused`, `rejected` …
    reason: Option<String>,
    /// Only calls that are stuck.
    #[serde(default)]
    stuck: bool,
    /// Only calls that undo the effects of others.
    #[serde(default)]
    pub(super) compensations: bool,
    /// Only calls that ended without a confirmation and hold those of their ordering key behind them.
    #[serde(default)]
    pub(super) holds_others: bool,
}

impl From<CallFilter> for Filter {
    fn from(filter: CallFilter) -> Self {
        Self {
            ids: Vec::new(),
            state: filter.state.map(|state| state.name().to_owned()),
            leaf: filter.leaf,
            key: filter.key,
            batch: filter.batch,
            reason: filter.reason,
            stuck: filter.stuck,
            compensations: filter.compensations,
            holds_others: filter.holds_others,
        }
    }
}

/// Which way a list of calls runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum First {
    /// The highest id first.
    #[default]
    Newest,
    /// The lowest id first.
    Oldest,
}

/// Which part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CallPage {
    /// Behind the call with this id: the `next` of the page before.
    #[param(value_type = Option<i64>)]
    after: Option<CallId>,
    /// At most so many.
    #[serde(default = "usual", deserialize_with = "limit")]
    #[param(value_type = i32, default = 50, minimum = 1, maximum = 1000)]
    pub(super) limit: usize,
    /// Which come first; the newest unless it is said.
    #[serde(default)]
    #[param(inline)]
    first: First,
}

impl CallPage {
    /// The page, and one more call, which says whether there is another one.
    pub(super) fn and_one(&self) -> Page {
        Page {
            order: match self.first {
                First::Newest => Order::Newest,
                First::Oldest => Order::Oldest,
            },
            after: self.after,
            limit: self.limit + 1,
        }
    }
}

/// A state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum BatchState {
    Open,
    Closing,
    Succeeded,
    Cancelling,
    Compensating,
    Cancelled,
    Finished,
}

impl BatchState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Succeeded => "succeeded",
            Self::Cancelling => "cancelling",
            Self::Compensating => "compensating",
            Self::Cancelled => "cancelled",
            Self::Finished => "finished",
        }
    }
}

/// Which batches. All that is given has to hold.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BatchFilter {
    /// Only batches in this state.
    pub(super) state: Option<BatchState>,
    /// Only batches that are stuck.
    #[serde(default)]
    pub(super) stuck: bool,
}

/// Which part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BatchPage {
    /// Behind this batch: the `next` of the page before.
    pub(super) after: Option<Uuid>,
    /// At most so many.
    #[serde(default = "usual", deserialize_with = "limit")]
    #[param(value_type = i32, default = 50, minimum = 1, maximum = 1000)]
    pub(super) limit: usize,
}

/// Which part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JobPage {
    /// Behind this job: the `next` of the page before.
    pub(super) after: Option<i64>,
    /// At most so many.
    #[serde(default = "usual", deserialize_with = "limit")]
    #[param(value_type = i32, default = 50, minimum = 1, maximum = 1000)]
    pub(super) limit: usize,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::operator::{STATES, batches::BATCH_STATES};

    #[test]
    fn the_states_are_those_of_the_tables() {
        for name in STATES {
            let state: State = serde_json::from_value(json!(name)).expect(name);
            assert_eq!(state.name(), *name);
        }
        for name in BATCH_STATES {
            let state: BatchState = serde_json::from_value(json!(name)).expect(name);
            assert_eq!(state.name(), *name);
        }
    }
}
