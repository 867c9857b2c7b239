//! Migrations while producers insert and instances work.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::{followed_by, migrate, timed_insert};
use crate::harness::{Bed, app::App, sidecar::Sidecar, wait::until};

/// What the next release could bring: columns and an index, and for prepared statements the worst, another type of a column
/// that they return. PostgreSQL rewrites nothing for it; but a function that is given the row keeps its plans in each session, and
/// is to be made anew.
const NEXT: &str = "\
INSERT INTO leafhopper.schema_version (version, name, oldest_reader) \
SELECT max(version) + 1, 'next', max(version) FROM leafhopper.schema_version;
DO $$ DECLARE
    call text := pg_get_viewdef('leafhopper.call');
    readers text := (SELECT string_agg(a.grantee::regrole::text, ', ') FROM pg_class c, aclexplode(c.relacl) a
                      WHERE c.oid = 'leafhopper.call'::regclass AND a.privilege_type = 'SELECT');
BEGIN
    DROP VIEW leafhopper.call;
    ALTER TABLE leafhopper.outbox ADD COLUMN later_on text, ALTER COLUMN content_type TYPE varchar;
    EXECUTE 'CREATE VIEW leafhopper.call AS ' || call;
    EXECUTE pg_get_functiondef('leafhopper.is_well_formed'::regproc);
    EXECUTE 'GRANT SELECT ON leafhopper.call TO ' || readers;
END $$;
ALTER TABLE leafhopper.dispatch ADD COLUMN later_on text;
ALTER TABLE leafhopper.finished ADD COLUMN later_on text;
ALTER TABLE leafhopper.result ADD COLUMN later_on text;
ALTER TABLE leafhopper.attempt ADD COLUMN later_on text;";

/// Longer than the wait for a lock, and than a machine that has other things to do makes an INSERT take.
const LONGEST: Duration = Duration::from_secs(8);

/// Whether somebody waits for the whole of the outbox.
async fn is_waited_for(app: &App) -> bool {
    let waits = "SELECT 1 FROM pg_locks WHERE relation = 'leafhopper.outbox'::regclass \
                    AND mode = 'AccessExclusiveLock' AND NOT granted";
    !app.rows(waits).await.is_empty()
}

#[tokio::test]
async fn a_migration_that_finds_a_lock_in_its_way_lets_producers_pass() {
    let bed = Bed::new().await;
    let (report, producer) = (
        App::connect(&bed.database.url).await,
        App::connect(&bed.database.url).await,
    );
    report
        .execute("BEGIN; SELECT count(*) FROM leafhopper.outbox")
        .await;
    let migrations = followed_by(NEXT);
    let over = AtomicBool::new(false);
    let produce = async {
        let (mut longest, mut count) = (Duration::ZERO, 0);
        while !over.load(Ordering::SeqCst) {
            longest = longest.max(timed_insert(&producer, &format!("k{count}")).await);
            count += 1;
        }
        (longest, count)
    };
    let watch = async {
        for _ in 0..3 {
            until("the migration waits", async || {
                if is_waited_for(&bed.app).await {
                    Ok(())
                } else {
                    Err(())
                }
            })
            .await;
            until("it has given up", async || {
                if is_waited_for(&bed.app).await {
                    Err(())
                } else {
                    Ok(())
                }
            })
            .await;
        }
        report.execute("ROLLBACK").await;
    };
    let migrated = async {
        let applied = migrate(&bed, &migrations).await;
        over.store(true, Ordering::SeqCst);
        applied
    };
    let ((), applied, (longest, count)) = tokio::join!(watch, migrated, produce);
    assert_eq!(applied.unwrap(), 1);
    assert!(longest < LONGEST, "an INSERT of {count} took {longest:?}");
    assert!(count > 10, "{count} inserts");
}

#[tokio::test]
async fn a_rolling_upgrade_under_load_loses_and_doubles_nothing() {
    let bed = Bed::new().await;
    let config = bed
        .least_config("concurrency = 8\ntimeout = \"20s\"")
        .dispatch("lease = \"10s\"");
    let (mut first, mut second) = tokio::join!(config.start(), config.start());
    let producer = App::connect(&bed.database.url).await;
    let over = AtomicBool::new(false);
    let produce = async {
        let (mut longest, mut keys) = (Duration::ZERO, Vec::new());
        while !over.load(Ordering::SeqCst) {
            let key = format!("k{}", keys.len());
            longest = longest.max(timed_insert(&producer, &key).await);
            keys.push(key);
        }
        (longest, keys)
    };
    let migrations = followed_by(NEXT);
    let upgrade = async {
        until_confirmed(&bed, 50).await;
        assert_eq!(migrate(&bed, &migrations).await.unwrap(), 1);
        until_confirmed(&bed, 50).await;
        for sidecar in [&mut first, &mut second] {
            let stopped = sidecar.stop().await;
            assert!(stopped.success(), "{stopped:?}");
            sidecar.restart().await;
            until_confirmed(&bed, 50).await;
        }
        over.store(true, Ordering::SeqCst);
    };
    let ((), (longest, keys)) = tokio::join!(upgrade, produce);
    assert!(longest < LONGEST, "an INSERT took {longest:?}");
    bed.app.until_all_confirmed(keys.len()).await;
    bed.leaf.assert_each_effect_once(&keys);
    assert_eq!(bed.leaf.all_requests().len(), keys.len());
    // It has been met, and has stopped nobody. (A connection on which the statement had not been prepared yet meets nothing.)
    let logs = [&first, &second].map(Sidecar::log);
    assert!(
        [&first, &second].into_iter().any(met_the_change),
        "{logs:#?}"
    );
}

/// A prepared statement of before the migration was refused.
fn met_the_change(sidecar: &Sidecar) -> bool {
    let log = format!("{:?}", sidecar.log());
    log.contains("cached plan must not change result type")
}

/// Waits until so many more calls than now are confirmed.
async fn until_confirmed(bed: &Bed, more: i64) {
    let confirmed = async || {
        let count = "SELECT count(*) AS n FROM leafhopper.result";
        bed.app.rows(count).await[0]["n"].as_i64().unwrap()
    };
    let goal = confirmed().await + more;
    until(&format!("{more} more calls are confirmed"), async || {
        let now = confirmed().await;
        if now >= goal {
            Ok(())
        } else {
            Err((now, goal))
        }
    })
    .await;
}
