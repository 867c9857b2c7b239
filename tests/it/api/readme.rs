//! The README's examples of the API, as they stand there.

use std::process::Command;

use serde_json::Value;

use crate::{
    clients::{missing, runs},
    harness::{Bed, app::keyed, sidecar::Config},
};

const TOKEN: &str = "a token of some length";

#[tokio::test]
async fn the_readme_s_requests_do_what_they_say() {
    if !runs(Command::new("curl").arg("--version")) {
        missing("curl");
        return;
    }
    let bed = Bed::new().await;
    bed.leaf.always().key("lost").times(1).resets();
    let config = Config::new(&bed.database.url)
        .leaf("pay", &bed.leaf.url(), "in_doubt = \"park\"")
        .listen("admin_token = { env = \"ADMIN\" }");
    let sidecar = config.sidecar().environment("ADMIN", TOKEN).start().await;
    let lost = bed.app.insert(keyed("pay", "lost")).await;
    bed.app.until_state(lost, "parked").await;
    let failed = bed.app.insert(keyed("nobody", "failed")).await;
    bed.app
        .execute(&format!(
            "UPDATE leafhopper.outbox SET leaf = 'pay' WHERE id = {failed}; \
             DELETE FROM leafhopper.dispatch WHERE call_id = {failed}; \
             INSERT INTO leafhopper.finished (call_id, state, reason) VALUES ({failed}, 'failed', 'gave_up')"
        ))
        .await;
    let readme = include_str!("../../../README.md");
    let blocks = readme.split("```sh\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.starts_with("api=")).unwrap();
    let script = block
        .replace("http://127.0.0.1:9187", &sidecar.url(""))
        .replace("4711", &lost.to_string());
    let mut shell = Command::new("sh");
    let script = format!("set -eu\n{script}");
    shell
        .args(["-c", &script])
        .env("LEAFHOPPER_ADMIN_TOKEN", TOKEN);
    let output = tokio::task::spawn_blocking(move || shell.output())
        .await
        .unwrap()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let answers: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(answers.len(), script.matches("\ncurl \"").count());
    assert_eq!(answers[0]["calls"][0]["id"], lost);
    assert_eq!(answers[2]["state"], "pending");
    assert_eq!(answers[5]["matched"], 1);
    assert_eq!(answers[7]["action"], "retry");
    bed.app.until_state(lost, "confirmed").await;
}
