//! What people ask for costs what is shown, however much history there is.

use crate::harness::Bed;

use super::{fill, wrong_plan};
use crate::outbox::table;

/// Statements with their parameters, and the indexes that they must use.
const ASKED: &str = r#"
list_all.sql :: NULL, 9223372036854775807, true, 51 :: outbox_pkey
list_named.sql :: NULL, 'k7', NULL, 9223372036854775807, true, 51 :: outbox_key
list_named.sql :: md5('7')::uuid, NULL, NULL, 9223372036854775807, true, 51 :: outbox_batch
list_tracked.sql :: true, false, 'parked', NULL, 9223372036854775807, true, 1000, NULL :: dispatch_one_at_a_time
list_tracked.sql :: true, false, 'pending', NULL, 9223372036854775807, true, 1000, NULL :: dispatch_pkey
list_tracked.sql :: false, true, 'failed', NULL, 0, false, 1000, 'rejected' :: finished_pkey
list_heads.sql :: NULL, 0, false, 1000 :: order_hold_head
list_rows.sql :: '{7,20007,40007}', NULL, NULL, false, NULL, NULL, NULL, false, false :: outbox_pkey dispatch_pkey finished_pkey result_pkey
list_batches.sql :: NULL, false, NULL, 51 :: batch_created
list_batches.sql :: 'open', false, NULL, 51 :: batch_live
list_batches.sql :: 'cancelled', false, NULL, 51 :: batch_failed
list_batches.sql :: 'succeeded', false, NULL, 51 :: batch_created
list_batches.sql :: NULL, true, NULL, 51 :: batch_live
batch_rows.sql :: ARRAY[md5('7'), md5('17')]::uuid[] :: batch_pkey outbox_batch
show_call.sql :: 40007, 500, 20 :: outbox_pkey dispatch_pkey finished_pkey result_pkey attempt_call operator_action_call
job_list.sql :: NULL, 9223372036854775807, 51 :: job_pkey
job_list.sql :: 7, 0, 0 :: job_pkey
job_running.sql :: 20 :: job_running
job_newest_call.sql ::  :: outbox_pkey
job_take.sql :: 7, 0 :: job_running
job_keep.sql :: 7, 9, 1, 1, '[]', 20, false :: job_pkey
job_spread.sql :: '{1,2}', 60 :: dispatch_pkey
failed_lately.sql :: 1000 :: finished_state outbox_pkey
batches_like.sql :: md5('7')::uuid, md5('7')::uuid, 20 :: batch_pkey
recent_actions.sql :: 200, 5000 :: operator_action_pkey
list_leaves.sql ::  :: operator_action_leaf
"#;

/// Many jobs and actions, and heads that hold others.
const MORE: &str = "\
INSERT INTO leafhopper.job (action, filter, actor, reason, last_id, state, finished_at) \
SELECT 'retry', '{}', 'a', 'r', n, CASE WHEN n % 1000 = 0 THEN 'running' ELSE 'done' END, \
       CASE WHEN n % 1000 <> 0 THEN now() END FROM generate_series(1, 20000) n; \
INSERT INTO leafhopper.operator_action (actor, action, call_id, leaf, reason) \
SELECT 'a', 'retry', n, 'leaf1', 'r' FROM generate_series(1, 20000) n; \
INSERT INTO leafhopper.operator_action (actor, action, leaf, reason) \
SELECT 'a', 'pause', 'leaf1', 'r' FROM generate_series(1, 100) n; \
INSERT INTO leafhopper.leaf_control (leaf, paused) VALUES ('leaf1', true); \
INSERT INTO leafhopper.order_hold (leaf, ordering_key, head) SELECT 'leaf1', 'h' || n, 20000 + n FROM generate_series(1, 5000) n; \
ANALYZE leafhopper.job, leafhopper.operator_action, leafhopper.order_hold";

#[tokio::test]
async fn what_people_ask_for_uses_its_indexes() {
    let bed = Bed::new().await;
    fill(&bed.app).await;
    bed.app.execute(MORE).await;
    let mut wrong = Vec::new();
    for asked in table(ASKED) {
        let large = [
            "outbox",
            "dispatch",
            "finished",
            "result",
            "attempt",
            "batch",
            "operator_action",
            "job",
        ];
        wrong.extend(wrong_plan(&bed.app, asked, &large).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
