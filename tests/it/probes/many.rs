//! Many calls in doubt: the leaf's limits, several instances, and a database that is away.

use std::time::Duration;

use super::{PROBE, QUICK, asked_and_sent, asking, post};
use crate::harness::{
    Bed,
    folder::Folder,
    leaf::Gate,
    proxy::Proxy,
    sidecar::Config,
    wait::{until, until_within},
};

async fn insert_many(bed: &Bed, prefix: &str, count: usize) {
    let sql = format!(
        "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
         SELECT 'leaf', '{prefix}' || n, '/things', jsonb_build_object('key', '{prefix}' || n) \
           FROM generate_series(1, {count}) AS n"
    );
    bed.app.execute(&sql).await;
}

async fn until_confirmed(bed: &Bed, count: usize) {
    let what = format!("{count} calls are confirmed");
    until_within(Duration::from_secs(60), &what, async || {
        let states = bed
            .app
            .rows("SELECT state, count(*) AS calls FROM leafhopper.call GROUP BY state")
            .await;
        let done = states.len() == 1 && states[0]["state"] == "confirmed";
        if done && states[0]["calls"] == count {
            Ok(())
        } else {
            Err(states)
        }
    })
    .await;
}

#[tokio::test]
async fn probes_and_calls_share_the_leaf_s_slots_and_neither_starves() {
    for slots in [1, 4] {
        let bed = Bed::new().await;
        bed.leaf
            .on("/things")
            // Long enough in sum for the prober to look more than once.
            .takes(Duration::from_millis(10 * u64::try_from(slots).unwrap()))
            .answers(201);
        bed.leaf.on("/things").times(30).resets();
        // A poll so seldom that only hints between the two keep them going.
        let _sidecar = asking(&bed, &format!("concurrency = {slots}"))
            .poll_interval("1s")
            .start()
            .await;
        insert_many(&bed, "k", 200).await;
        until_confirmed(&bed, 200).await;
        assert!(
            bed.leaf.most_at_once(None) <= slots,
            "{}",
            bed.leaf.most_at_once(None)
        );
        bed.leaf
            .assert_each_effect_once((1..=200).map(|n| format!("k{n}")));
        let requests = bed.leaf.all_requests();
        let last_call = requests.iter().rposition(|r| r.method == "POST").unwrap();
        let before = requests[..last_call]
            .iter()
            .filter(|r| r.method == "GET")
            .count();
        assert!(
            before >= 20,
            "{before} probes among the calls, {slots} slots"
        );
    }
}

#[tokio::test]
async fn two_instances_ask_about_each_call_once() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let config = asking(&bed, "concurrency = 8");
    let (_first, _second) = tokio::join!(config.start(), config.start());
    insert_many(&bed, "k", 60).await;
    until_confirmed(&bed, 60).await;
    assert!(bed.leaf.most_at_once(None) <= 8);
    for n in 1..=60 {
        assert_eq!(asked_and_sent(&bed, &format!("k{n}")), (1, 1));
    }
}

#[tokio::test]
async fn what_a_probe_found_while_the_database_was_away_is_recorded_afterwards() {
    let bed = Bed::new().await;
    let proxy = Proxy::in_front_of(&bed.database.url).await;
    bed.leaf.on("/things").resets();
    let gate = Gate::closed();
    bed.leaf
        .on("/effects")
        .times(1)
        .waits_before_the_answer(&gate)
        .answers(crate::harness::leaf::Reply::json(
            200,
            &serde_json::json!({ "id": 1, "key": "k" }),
        ));
    let sidecar = Config::new(&proxy.url(&bed.database.url))
        .leaf("leaf", &bed.leaf.url(), &QUICK.replace("10s", "20s"))
        .probe("leaf", PROBE)
        .start()
        .await;
    let id = bed.app.insert(post("k")).await;
    gate.until_arrived(1).await;
    proxy.cut();
    gate.open();
    until("the outage was met again and again", async || {
        let errors = sidecar
            .metric("leafhopper_database_errors_total", &[])
            .await;
        let asked = sidecar
            .metric("leafhopper_probes_total", &["verdict=\"found\""])
            .await;
        if errors >= 5.0 && asked >= 1.0 {
            Ok(())
        } else {
            Err((errors, asked))
        }
    })
    .await;
    proxy.restore();
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(asked_and_sent(&bed, "k"), (1, 1));
}

#[tokio::test]
async fn a_call_that_can_t_be_ended_keeps_no_other_from_being_asked_about() {
    let bed = Bed::new().await;
    bed.app
        .execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'none shall end'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON leafhopper.finished FOR EACH ROW EXECUTE FUNCTION refuse();
             SELECT leafhopper.confirm('leaf', 'stands', 200)",
        )
        .await;
    let stands = bed.app.insert(post("stands")).await;
    bed.app
        .execute(
            "UPDATE leafhopper.dispatch SET state = 'in_doubt', tries = 1, attempts = 1, due_at = now(), in_doubt_since = now(),
                    claimed_at = now(), first_claimed_at = now(), give_up_at = now() + interval '1 h', alive_until = now()",
        )
        .await;
    bed.leaf.on("/things").resets();
    let sidecar = asking(&bed, "").start().await;
    let id = bed.app.insert(post("k")).await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(asked_and_sent(&bed, "k"), (1, 1));
    sidecar.until_log("none shall end").await;
    assert_eq!(bed.app.state(stands).await, "in_doubt");
    bed.app
        .execute("DROP TRIGGER refuse ON leafhopper.finished")
        .await;
    bed.app.until_state(stands, "confirmed").await;
    assert_eq!(asked_and_sent(&bed, "stands"), (0, 0));
}

/// One look sees five hundred of them.
#[tokio::test]
async fn those_whose_credential_is_refused_keep_no_others_from_being_asked_about() {
    let bed = Bed::new().await;
    let folder = Folder::new();
    folder.write("good", "good-token-1");
    folder.write("bad", "bad-token-1");
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, key, path, credential)
             SELECT 'leaf', 'k' || n, '/things', CASE WHEN n <= 600 THEN 'bad' ELSE 'good' END FROM generate_series(1, 601) n;
             UPDATE leafhopper.dispatch SET state = 'in_doubt', tries = 1, attempts = 1, in_doubt_since = now(),
                    due_at = now() - interval '1 s' * (1000 - call_id), claimed_at = now(), first_claimed_at = now(),
                    give_up_at = now() + interval '1 h', alive_until = now()",
        )
        .await;
    bed.leaf.has_already("k601");
    bed.leaf.on("/effects").times(1).refuses(401);
    let lines = format!(
        "concurrency = 1\nauth = {{ bearer = {{ env = \"LEAF_TOKEN\" }} }}\ncredentials = {{ dir = {:?} }}",
        folder.path()
    );
    let config = asking(&bed, &lines);
    let sidecar = config.sidecar().environment("LEAF_TOKEN", "own-token-1");
    let _sidecar = sidecar.start().await;
    until("the one that can be asked about is", async || {
        let standing = bed.app.results("leaf", "k601").await;
        if standing.is_empty() { Err(()) } else { Ok(()) }
    })
    .await;
}
