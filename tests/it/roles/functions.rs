//! The functions of the schema: none lets its caller do more than it is for.

use crate::harness::Bed;

#[tokio::test]
async fn no_function_of_the_schema_can_be_led_astray_or_called_by_everybody() {
    let bed = Bed::new().await;
    let functions = "SELECT p.proname AS name, p.prosecdef AS definer, p.proconfig::text AS settings, \
                            has_function_privilege('public', p.oid, 'EXECUTE') AS open, \
                            pg_get_functiondef(p.oid) LIKE '%EXECUTE %' AS makes_statements \
                       FROM pg_proc p WHERE p.pronamespace = 'leafhopper'::regnamespace ORDER BY 1";
    let rows = bed.app.rows(functions).await;
    let of = |holds: &dyn Fn(&serde_json::Value) -> bool| -> Vec<&str> {
        let found = rows.iter().filter(|row| holds(row));
        found.map(|row| row["name"].as_str().unwrap()).collect()
    };
    let fixed = "{\"search_path=pg_catalog, pg_temp\"}";
    let loose = of(&|row| row["settings"] != fixed);
    // A constraint's function and a lean expression over the row that they are given: neither runs as somebody else.
    assert_eq!(loose, ["batch_waits_since", "is_consistent"]);
    let definers = of(&|row| row["definer"] == true);
    assert!(definers.len() > 10, "{definers:?}");
    assert!(definers.iter().all(|name| !loose.contains(name)));
    // It looks at nothing but the row that is inserted.
    assert_eq!(of(&|row| row["open"] == true), ["is_well_formed"]);
    // No text of anybody's becomes a statement.
    assert_eq!(of(&|row| row["makes_statements"] == true), [] as [&str; 0]);
}
