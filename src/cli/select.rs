//! Which calls a command means: named by id, or all that match a filter.

use std::io;

use clap::{Args, builder::PossibleValuesParser};
use uuid::Uuid;

use super::{Usage, calls::list, output::Out};
use crate::{
    domain::call::CallId,
    present::text::{clean, counted},
    store::{
        Store,
        operator::{
            FAILED_REASONS, PARKED_REASONS, PENDING_REASONS, STATES,
            act::{By, Target},
            list::{Filter, Order, Page},
        },
    },
    suggest::closest,
};

/// So many calls are read at a time while a selection is made.
const PAGE: usize = 1000;

/// The reasons that are neither for those that wait nor for those that failed.
const OTHER_REASONS: &[&str] = &["untracked", "batch_finished", "waived"];

/// All that is given must hold.
#[derive(Debug, Default, Args)]
pub(super) struct FilterArgs {
    /// Only calls in this state.
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(STATES))]
    state: Option<String>,
    /// Only calls for this leaf.
    #[arg(long, value_name = "LEAF")]
    leaf: Option<String>,
    /// Only calls with this effect key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only calls of this batch.
    #[arg(long, value_name = "UUID")]
    batch: Option<Uuid>,
    /// Only calls with this reason, as the list shows it.
    #[arg(long, value_name = "REASON")]
    reason_is: Option<String>,
    /// Only calls that are stuck.
    #[arg(long)]
    stuck: bool,
}

impl FilterArgs {
    /// Of these ids, where there are any.
    pub(crate) fn filter(self, ids: Vec<CallId>) -> Filter {
        Filter {
            ids,
            state: self.state,
            leaf: self.leaf,
            key: self.key,
            batch: self.batch,
            reason: self.reason_is,
            stuck: self.stuck,
            compensations: false,
            holds_others: false,
        }
    }
}

/// The calls that a change is for, and who answers for it.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// The calls; else those that match the filter.
    #[arg(value_name = "ID", value_parser = super::call_id)]
    ids: Vec<CallId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Refuse if the call has another number of attempts by now. For one call.
    #[arg(long, value_name = "N")]
    expect_attempts: Option<u32>,
    /// Why; it is kept with the action.
    #[arg(long, value_name = "TEXT", value_parser = super::reason)]
    reason: String,
    /// Don't ask.
    #[arg(long, short)]
    yes: bool,
    /// List the calls that are meant, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: as `calls --json` lists them.
    #[arg(long, requires = "dry_run")]
    json: bool,
}

/// What a change is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meant<'a> {
    /// What will be done: `retry`.
    pub(crate) verb: &'a str,
    /// The states of calls that it is for, where the filter names none.
    pub(crate) states: &'a [&'a str],
    /// It is for compensations alone.
    pub(crate) compensations: bool,
}

/// Calls that are to be changed.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) by: By,
    pub(crate) targets: Vec<Target>,
}

impl Selection {
    /// The calls that are meant; `None` where there are none, or the answer is no.
    pub(crate) async fn choose(
        self,
        store: &Store,
        meant: Meant<'_>,
        out: &mut Out<'_>,
    ) -> anyhow::Result<Option<Chosen>> {
        let verb = meant.verb;
        let by_id = !self.ids.is_empty();
        let mut filter = self.filter.filter(Vec::new());
        let filtered = filter != Filter::default();
        if by_id == filtered {
            let problem = format!(
                "{verb}: name the calls either by their ids or by a filter (--leaf, --state, …)"
            );
            return Err(Usage(problem).into());
        }
        if self.expect_attempts.is_some() && self.ids.len() != 1 {
            return Err(Usage("--expect-attempts goes with exactly one id".to_owned()).into());
        }
        let targets = if by_id {
            let mut ids = self.ids;
            ids.sort_unstable();
            ids.dedup();
            let attempts = self.expect_attempts;
            ids.into_iter().map(|id| Target { id, attempts }).collect()
        } else {
            filter.compensations = meant.compensations;
            let mut targets = Vec::new();
            for state in meant.states {
                let named = filter.state.is_some();
                filter.state.get_or_insert_with(|| (*state).to_owned());
                targets.extend(matching(store, &filter).await?);
                if named {
                    break;
                }
                filter.state = None;
            }
            targets.sort_by_key(|target| target.id);
            targets
        };
        if targets.is_empty() {
            writeln!(out.err, "no call matches: there is nothing to {verb}")?;
            hint_at_reason(&filter, out)?;
            return Ok(None);
        }
        let calls = counted(targets.len(), "call");
        if self.dry_run {
            writeln!(
                out.err,
                "would {verb} {calls}, as far as each allows it; nothing is changed:"
            )?;
            would(store, &targets, self.json, out).await?;
            return Ok(None);
        }
        if !by_id && !self.yes && !ask(out, &format!("{verb} {calls}?"))? {
            writeln!(out.err, "nothing is changed")?;
            return Ok(None);
        }
        Ok(Some(Chosen {
            by: by(self.reason),
            targets,
        }))
    }
}

/// Lists these calls as `calls` does. One that does not exist is named alone.
async fn would(
    store: &Store,
    targets: &[Target],
    json: bool,
    out: &mut Out<'_>,
) -> anyhow::Result<()> {
    let ids: Vec<CallId> = targets.iter().map(|target| target.id).collect();
    let mut calls = Vec::new();
    for some in ids.chunks(PAGE) {
        calls.extend(store.calls_by_id(some).await?);
    }
    if json {
        let rows: Vec<&str> = calls.iter().map(|call| call.json.as_str()).collect();
        out.array(&rows, false)?;
    } else if !calls.is_empty() {
        list(&calls, out)?;
    }
    out.out.flush()?;
    for id in ids {
        if !calls.iter().any(|call| call.id == id) {
            writeln!(out.err, "there is no call {id}")?;
        }
    }
    Ok(())
}

/// Where nothing matches since the reason is none, the one that was probably meant. A cancelled call's reason is in
/// anybody's words, so an unknown one is no fault.
pub(crate) fn hint_at_reason(filter: &Filter, out: &mut Out<'_>) -> io::Result<()> {
    let Some(reason) = filter.reason.as_deref() else {
        return Ok(());
    };
    let known = [
        PENDING_REASONS,
        PARKED_REASONS,
        FAILED_REASONS,
        OTHER_REASONS,
    ]
    .concat();
    if known.contains(&reason) {
        return Ok(());
    }
    let meant = closest(reason, &known)
        .map(|meant| format!(": did you mean {meant}?"))
        .unwrap_or_default();
    writeln!(
        out.err,
        "{} is no reason of pending, parked or failed calls{meant}",
        clean(reason)
    )
}

/// The calls that match, the oldest first, each with the attempts that it has now.
async fn matching(store: &Store, filter: &Filter) -> anyhow::Result<Vec<Target>> {
    let mut targets: Vec<Target> = Vec::new();
    loop {
        let page = Page {
            order: Order::Oldest,
            after: targets.last().map(|target| target.id),
            limit: PAGE,
        };
        let calls = store.calls(filter, page).await?;
        targets.extend(calls.iter().map(|call| Target {
            id: call.id,
            attempts: Some(call.attempts),
        }));
        if calls.len() < PAGE {
            return Ok(targets);
        }
    }
}

/// Whether the person says yes. Where nobody can be asked, it is a fault of usage.
pub(crate) fn ask(out: &mut Out<'_>, question: &str) -> anyhow::Result<bool> {
    if !out.can_ask {
        let problem = format!("{question} Nobody is there to answer: say --yes");
        return Err(Usage(problem).into());
    }
    out.out.flush()?;
    write!(out.err, "{question} [y/N] ")?;
    out.err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Who acts: the user of the operating system, and the host.
pub(crate) fn by(reason: String) -> By {
    let uid = rustix::process::getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = user_name(&users, uid).unwrap_or_else(|| format!("uid {uid}"));
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    By {
        actor: format!("{user}@{host}"),
        reason,
    }
}

/// The name of a user in the text of a passwd file.
fn user_name(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id: u32 = fields.nth(1)?.parse().ok()?;
        (id == uid && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_number() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n# comment\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(user_name(users, 1000).as_deref(), Some("ada"));
        assert_eq!(user_name(users, 0).as_deref(), Some("root"));
        assert_eq!(user_name(users, 7), None);
    }
}
