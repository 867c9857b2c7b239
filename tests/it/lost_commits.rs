//! A database that lost what it had committed is noticed by a running instance, whichever of its loops looks first.

use crate::harness::{Bed, app::keyed, wait::until};

#[tokio::test]
async fn a_lost_renewal_stops_all_sending_although_the_next_one_comes_before_the_look() {
    let bed = Bed::new().await;
    let _sidecar = bed.config("").dispatch("lease = \"6s\"").start().await;
    until("it has renewed its lease a few times", async || {
        let rows = bed.app.rows("SELECT beat FROM leafhopper.instance").await;
        match rows[0]["beat"].as_i64() {
            Some(4..) => Ok(()),
            _ => Err(rows),
        }
    })
    .await;
    // As after a failover to a standby that lagged; the hint makes the next renewal come at once.
    bed.app
        .execute("UPDATE leafhopper.instance SET beat = 1; NOTIFY leafhopper_instance")
        .await;
    until("all sending is stopped", async || {
        let rows = bed.app.rows("SELECT change FROM leafhopper.origin").await;
        match rows[0]["change"].as_str() {
            Some(why) if why.contains("renewal") => Ok(()),
            _ => Err(rows),
        }
    })
    .await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    assert_eq!(bed.app.call(id).await["reason"], "database_changed");
    // Once a person has said how to go on, the same loss is not found again.
    bed.app
        .execute("UPDATE leafhopper.origin SET changed_at = NULL, change = NULL")
        .await;
    bed.app.until_state(id, "confirmed").await;
    let rows = bed.app.rows("SELECT change FROM leafhopper.origin").await;
    assert!(rows[0]["change"].is_null(), "{rows:?}");
}
