//! The process dies as it keeps answers in the journal, or as it records them at its start.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;

use super::{PATIENCE, QUICK, SIGKILLED, crashing_at};
use crate::harness::{Bed, app::keyed, folder::Folder, leaf::Gate};

/// The steps: two of the process that stops, one of the next that starts.
pub(super) const STEPS: &[&str] = &["journal: written", "journal: synced", "journal: recorded"];

#[tokio::test]
async fn an_answer_in_the_journal_is_recorded_whoever_dies_meanwhile() {
    for step in STEPS {
        let bed = Bed::new().await;
        let folder = Folder::new();
        let gate = Gate::closed();
        bed.leaf
            .always()
            .waits_before_the_answer(&gate)
            .answers(201);
        // Asked or sent again, nothing could be found out.
        let lines = format!("{QUICK}\nin_doubt = \"park\"");
        let (proxy, config) = bed.behind_a_proxy(&lines).await;
        let config = config.dispatch(&format!(
            "lease = \"60s\"\nshutdown_grace = \"3s\"\nstate_dir = \"{}\"",
            folder.path().display()
        ));
        let mut first = crashing_at(&config, step).start().await;
        let id = bed.app.insert(keyed("leaf", "k")).await;
        gate.until_arrived(1).await;
        proxy.cut();
        gate.open();
        first.signal(Signal::TERM);
        let status = first.exit_within(PATIENCE).await;
        let killed = status.signal() == SIGKILLED;
        proxy.restore();
        if *step == "journal: recorded" {
            assert!(!killed, "{step}: {status}");
            let status = crashing_at(&config, step)
                .launch()
                .exit_within(PATIENCE)
                .await;
            assert_eq!(status.signal(), SIGKILLED, "{step}: {status}");
        } else {
            assert!(killed, "{step}: {status}");
        }
        let _last = config.start().await;
        let call = bed.app.until_state(id, "confirmed").await;
        assert_eq!(call["attempts"], 1, "{step}");
        assert_eq!(bed.leaf.requests("k").len(), 1, "{step}");
        assert_eq!(
            bed.app.results("leaf", "k").await[0]["source"],
            "response",
            "{step}"
        );
    }
}
