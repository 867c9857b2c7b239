//! Which calls an action is for, of those that match a filter, and over how long what is sent again may be spread: what
//! the API and the page say of many calls.

use std::time::Duration;

use crate::{
    config::duration_of,
    store::operator::{act::Change, list::Filter},
};

/// What is sent again is spread over this time at most.
const SPREAD_MAX: Duration = Duration::from_hours(7 * 24);

/// Over how long what is sent again is spread.
///
/// # Errors
/// The text is no duration, or too long a one.
pub(super) fn spread(text: &str) -> Result<Duration, String> {
    let spread = duration_of(text)?;
    if spread > SPREAD_MAX {
        return Err(format!("{text} is too long: at most seven days"));
    }
    Ok(spread)
}

/// The calls that an action is for, of those that match.
///
/// # Errors
/// The filter means everything, or calls that the action is not for.
pub(super) fn meant(mut filter: Filter, change: Change<'_>) -> Result<Filter, String> {
    if filter == Filter::default() {
        return Err("filter: say which calls are meant: a leaf, a state, a batch …".to_owned());
    }
    let texts = [&filter.leaf, &filter.key, &filter.reason];
    if texts.into_iter().flatten().any(|text| text.contains('\0')) {
        return Err("filter: no name contains a NUL character".to_owned());
    }
    match change {
        Change::Waive => filter.compensations = true,
        Change::Release => {
            filter.holds_others = true;
            return Ok(filter);
        }
        Change::Retry
        | Change::Cancel
        | Change::NotExecutedSend
        | Change::NotExecutedEnd
        | Change::Confirm { .. } => {}
    }
    let states = change.states();
    match (filter.state.as_deref(), change.usual_states()) {
        (Some(state), _) if states.contains(&state) => {}
        (None, [usual]) => filter.state = Some((*usual).to_owned()),
        (Some(_) | None, _) => {
            let states = states.join(" or ");
            return Err(format!(
                "filter.state: this action is for calls that are {states}"
            ));
        }
    }
    Ok(filter)
}
