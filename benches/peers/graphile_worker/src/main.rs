//! graphile_worker (Rust) as the comparison runs it: each job's payload is POSTed to the leaf.
//!
//! DATABASE_URL, LEAF_URL, CONCURRENCY; MODE is `migrate`, `run`, or `recover`: run, and take over soon from one
//! that was killed.

use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, LocalQueueConfig, RefetchDelayConfig, TaskHandler, WorkerContext,
    WorkerOptions, WorkerRecoveryConfig,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone)]
struct Leaf {
    client: reqwest::Client,
    url: String,
}

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Call(serde_json::Value);

impl TaskHandler for Call {
    const IDENTIFIER: &'static str = "call";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let leaf = context.get_ext::<Leaf>().expect("the leaf is known");
        let request = leaf
            .client
            .post(&leaf.url)
            .header("content-type", "application/json")
            .body(self.0.to_string());
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let answer = answer.error_for_status().map_err(|error| error.to_string())?;
        answer.bytes().await.map_err(|error| error.to_string())?;
        Ok::<(), String>(())
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let concurrency: usize = variable("CONCURRENCY").parse()?;
    let leaf = Leaf {
        client: reqwest::Client::builder().no_proxy().build()?,
        url: variable("LEAF_URL"),
    };
    // Without a delay before it looks again, an idle local queue polls without a pause.
    let again = RefetchDelayConfig::default().with_duration(Duration::from_millis(100));
    let queue = LocalQueueConfig::default()
        .with_size(250)
        .with_queue_count(2)
        .with_refetch_delay(again);
    let mut options = WorkerOptions::default()
        .database_url(&variable("DATABASE_URL"))
        .max_pg_conn(20)
        .concurrency(concurrency)
        .poll_interval(Duration::from_secs(1))
        .local_queue(queue)
        .complete_job_batch_delay(Duration::from_millis(2))
        .fail_job_batch_delay(Duration::from_millis(2))
        .add_extension(leaf)
        .define_job::<Call>();
    if variable("MODE") == "recover" {
        let soon = WorkerRecoveryConfig::default()
            .enabled(true)
            .heartbeat_interval(Duration::from_millis(500))
            .sweep_interval(Duration::from_secs(1))
            .sweep_threshold(Duration::from_secs(2))
            .recovery_delay(Duration::ZERO);
        options = options.worker_recovery(soon);
    }
    // Brings the schema up to date, and the name of the task into its table.
    let worker = options.init().await?;
    if variable("MODE") != "migrate" {
        worker.run().await?;
    }
    Ok(())
}
