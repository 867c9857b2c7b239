//! Claim and record against a real server, through the store's own functions.

use std::{
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};

use criterion::Criterion;
use leafhopper::{
    demo::{
        binaries::Binaries,
        cluster::{Cluster, Durability, Options},
    },
    domain::call::Claimed,
    store::{
        Store,
        claim::{Looking, Start, Want},
        connect::Connect,
        migrate,
        record::Confirmation,
    },
};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

const GROUPS: [u32; 4] = [1, 16, 64, 256];

/// So many calls are inserted when none are left.
const BACKLOG: u32 = 50_000;

const HOUR: Duration = Duration::from_hours(1);

/// A server, and an instance that is registered there.
struct Bench {
    _cluster: Cluster,
    runtime: Runtime,
    store: Store,
    app: Client,
    instance: Uuid,
}

/// One for both benchmarks.
fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let runtime = Runtime::new().unwrap();
        let binaries = Binaries::find(None, &[Path::new(env!("CARGO_MANIFEST_DIR"))]).unwrap();
        let cluster = Cluster::start(Options {
            binaries,
            durability: Durability::Synced,
            settings: Vec::new(),
        })
        .unwrap();
        let url = format!("{}?sslmode=disable", cluster.url("postgres"));
        let (store, app, instance) = runtime.block_on(async {
            let connect = Connect::parse(&url.clone().into()).unwrap();
            migrate::migrate(&connect).await.unwrap();
            let store = Store::new(connect, 4).unwrap();
            let origin = store.origin().await.unwrap();
            store.keep_identity(&origin.is).await.unwrap();
            let instance = Uuid::new_v4();
            store
                .register(instance, "bench", HOUR, "[]", 0)
                .await
                .unwrap();
            let (app, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            (store, app, instance)
        });
        Bench {
            _cluster: cluster,
            runtime,
            store,
            app,
            instance,
        }
    })
}

impl Bench {
    /// So many calls, claimed, and how long that took.
    async fn claim(&self, group: u32) -> (Vec<Claimed>, Duration) {
        let want = [Want {
            leaf: "bench".to_owned(),
            slots: group,
            timeout: HOUR,
            give_up_after: HOUR,
            window: None,
            aged: 0,
            credentials: vec![String::new()],
            idempotency: None,
            replays_refusals: false,
            from: Start::default(),
        }];
        loop {
            let began = Instant::now();
            let claims = self
                .store
                .claim(self.instance, 1, &want, Looking::Fresh)
                .await
                .unwrap();
            let took = began.elapsed();
            if claims.claimed.len() == group as usize {
                return (claims.claimed, took);
            }
            self.record(&claims.claimed).await;
            let load = format!(
                "INSERT INTO leafhopper.outbox (leaf, path, body)
                 SELECT 'bench', '/', jsonb_build_object('i', i, 'pad', repeat('x', 263)) FROM generate_series(1, {BACKLOG}) i;
                 VACUUM ANALYZE"
            );
            for statement in load.split(';') {
                self.app.batch_execute(statement).await.unwrap();
            }
        }
    }

    async fn record(&self, claimed: &[Claimed]) -> Duration {
        let confirmations: Vec<Confirmation> = claimed.iter().map(confirmation).collect();
        let group: Vec<&Confirmation> = confirmations.iter().collect();
        let began = Instant::now();
        self.store.record_plain(&group).await.unwrap();
        began.elapsed()
    }
}

fn confirmation(call: &Claimed) -> Confirmation {
    Confirmation {
        call: call.id,
        leaf: call.leaf.clone(),
        key: call.key.clone(),
        attempt: call.attempt,
        generation: call.generation,
        status: 201,
        headers: "{\"content-type\": \"application/json\"}".to_owned(),
        body: Some("{\"id\": 123}".into()),
        body_raw: None,
        truncated: false,
        request_hash: call.request.as_ref().unwrap().hash(),
        took: Duration::from_millis(1),
    }
}

/// The claim alone; what it took is recorded outside of the measured time.
pub(crate) fn claim(criterion: &mut Criterion) {
    for group in GROUPS {
        criterion.bench_function(&format!("claim {group}"), |bencher| {
            let bench = bench();
            bencher.iter_custom(|times| {
                bench.runtime.block_on(async {
                    let mut sum = Duration::ZERO;
                    for _ in 0..times {
                        let (claimed, took) = bench.claim(group).await;
                        sum += took;
                        bench.record(&claimed).await;
                    }
                    sum
                })
            });
        });
    }
}

/// The record alone, of calls that were claimed outside of the measured time.
pub(crate) fn record(criterion: &mut Criterion) {
    for group in GROUPS {
        criterion.bench_function(&format!("record {group}"), |bencher| {
            let bench = bench();
            bencher.iter_custom(|times| {
                bench.runtime.block_on(async {
                    let mut sum = Duration::ZERO;
                    for _ in 0..times {
                        let (claimed, _) = bench.claim(group).await;
                        sum += bench.record(&claimed).await;
                    }
                    sum
                })
            });
        });
    }
}
