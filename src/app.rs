//! The running sidecar: puts the parts together, runs until told, drains.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    config::{Config, Env, Listen},
    engine::{self, Begun, Context, Engine, Identity, Lanes, Predecessor},
    metrics::Metrics,
    observe::{Observation, Observer, Refused},
    shutdown::{Asked, Signals, Stop, Tasks},
    store::{
        Store, StoreError,
        connect::Connect,
        migrate::{self, MigrateError},
    },
    surface,
    systemd::Systemd,
    telemetry::Telemetry,
};

/// What is left of `shutdown_grace` is the time to export the last spans in, within these limits.
const SPANS_AT_LEAST: Duration = Duration::from_secs(1);
const SPANS_AT_MOST: Duration = Duration::from_secs(5);

/// Connections of the HTTP surface for people, beside the engine's; a scrape has one more.
const PEOPLE_CONNECTIONS: usize = 2;

/// How long answers that are under way at the end may still take.
const ANSWERS_GRACE: Duration = Duration::from_secs(1);

/// What `run` was told on the command line.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The configuration that was loaded.
    pub config: Config,
    /// Where it came from; SIGHUP reads it again.
    pub file: PathBuf,
    /// Migrate first.
    pub migrate: bool,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything under way came to its end.
    Clean,
    /// Some calls had to be left in doubt.
    Doubts,
    /// A loop broke; what was under way came to its end as far as it could.
    Broken,
    /// A second signal came: at once.
    AtOnce,
}

/// Runs the sidecar until it is told to stop.
///
/// # Errors
/// What a person has to mend before it can run: an address in use, a missing schema, a refused login. A
/// database that can't be reached is waited for.
pub async fn run(setup: Setup, env: Env<'static>) -> anyhow::Result<Ended> {
    let mut signals = Signals::install().context("can't handle signals")?;
    let config = &setup.config;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let url = Connect::parse(&config.database.url).context("database.url")?;
    let direct = match &config.database.direct_url {
        Some(direct) => Connect::parse(direct).context("database.direct_url")?,
        None => url.clone(),
    };
    let metrics = Arc::new(Metrics::new());
    let lanes = lanes(config, &metrics)?;
    let identity = identity();
    let (begun, dead) = open_state_dir(config, &identity)?;
    let stop = Stop::default();
    let (recorder, recordings) = engine::recordings();
    let context = Context::new(
        Store::new(url.clone(), config.database.pool_size)?.preparing(),
        Observer::new(metrics),
        identity,
        lanes,
        config.dispatch.clone(),
        stop.clone(),
        recorder,
    );
    context.set_retention(config.retention.clone());
    let telemetry = Telemetry::start(env, context.identity.id);
    let context = Arc::new(context.noting(begun).traced(telemetry));

    let stores = surface::Stores {
        scrapes: Store::new(url.clone(), 1)?,
        people: Store::new(url, PEOPLE_CONNECTIONS)?,
    };
    let surface = Tasks::default();
    let surface_end = CancellationToken::new();
    let listen = config.listen.clone();
    let address = serve(&surface, &context, stores, listen, &surface_end).await?;
    let systemd = Systemd::of(env);
    systemd.watch(&surface, &context, &surface_end);
    tracing::info!(
        listen.address = %address,
        instance.id = %context.identity.id,
        "leafhopper {} listens on {address}",
        env!("CARGO_PKG_VERSION")
    );

    let mut reloads = Reloads {
        context: &context,
        file: &setup.file,
        current: setup.config,
        env,
        systemd: &systemd,
    };
    let prepared = prepare(&context, &direct, setup.migrate, dead, &systemd);
    tokio::select! {
        prepared = prepared => prepared?,
        () = reloads.until_stop(&mut signals) => {
            systemd.stopping(Duration::ZERO);
            return Ok(Ended::Clean);
        }
    }
    let engine = Engine::start(Arc::clone(&context), recordings, Some(direct), stop);
    tracing::info!(leaves = context.lanes.names().join(", "), "dispatching");
    systemd.ready();
    let broken = tokio::select! {
        () = reloads.until_stop(&mut signals) => false,
        () = engine.broken() => true,
        () = surface.broken() => true,
        () = context.outgrown.cancelled() => false,
    };

    systemd.stopping(context.dispatch().shutdown_grace);
    tokio::select! {
        ended = drain(&context, engine, (&surface, &surface_end), broken) => ended,
        () = stop_asked(&mut signals) => {
            tracing::warn!("told to stop a second time: the calls under way are left in doubt");
            Ok(Ended::AtOnce)
        }
    }
}

/// A lane for each leaf, and its series among the metrics.
fn lanes(config: &Config, metrics: &Metrics) -> anyhow::Result<Lanes> {
    let lanes = Lanes::default();
    lanes.configure(config)?;
    for name in lanes.names() {
        metrics.touch(&name);
    }
    Ok(lanes)
}

/// Ends what is under way, within `shutdown_grace` where that is possible.
///
/// # Errors
/// The schema has outgrown this program: said with the versions, as whoever starts it again is told.
async fn drain(
    context: &Context,
    engine: Engine,
    (surface, surface_end): (&Tasks, &CancellationToken),
    broken: bool,
) -> anyhow::Result<Ended> {
    let outgrown = context.outgrown.is_cancelled();
    if outgrown {
        tracing::error!(
            "the database's schema has gone on to where this leafhopper can't work with it: it ends"
        );
    }
    let grace = context.dispatch().shutdown_grace;
    let calls = context.held.len();
    tracing::info!(calls, "stopping: {calls} calls are under way");
    let begun = Instant::now();
    let clean = engine.drain(grace).await;
    // Until here it says how the stop goes on.
    surface_end.cancel();
    let answered = async { drop(tokio::time::timeout(ANSWERS_GRACE, surface.join()).await) };
    // The spans of what did not end in time are those that somebody will look for.
    let left = grace.saturating_sub(begun.elapsed());
    let exported = context
        .telemetry
        .end(left.clamp(SPANS_AT_LEAST, SPANS_AT_MOST));
    tokio::join!(answered, exported);
    if outgrown {
        context.store.check_schema().await?;
    }
    Ok(match clean {
        // Whoever restarts what has failed has to restart this.
        _ if broken => Ended::Broken,
        true => Ended::Clean,
        false => Ended::Doubts,
    })
}

fn identity() -> Identity {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    Identity {
        id: Uuid::now_v7(),
        name: format!("{host}:{}", std::process::id()),
    }
}

/// What this process keeps in `dispatch.state_dir`, and those that died there.
fn open_state_dir(
    config: &Config,
    identity: &Identity,
) -> anyhow::Result<(Option<Begun>, Vec<Predecessor>)> {
    let Some(folder) = &config.dispatch.state_dir else {
        return Ok((None, Vec::new()));
    };
    let (begun, dead) = Begun::open(folder, identity.id)
        .with_context(|| format!("dispatch.state_dir: {}", folder.display()))?;
    Ok((Some(begun), dead))
}

async fn stop_asked(signals: &mut Signals) {
    while signals.next().await != Asked::Stop {}
}

async fn serve(
    tasks: &Tasks,
    context: &Arc<Context>,
    stores: surface::Stores,
    listen: Listen,
    end: &CancellationToken,
) -> anyhow::Result<SocketAddr> {
    let address = listen.address;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listen.address: can't listen on {address}"))?;
    let bound = listener.local_addr().context("listen.address")?;
    let (context, connections) = (Arc::clone(context), tasks.clone());
    tasks.spawn_loop(
        "surface",
        end.clone(),
        surface::serve(listener, context, stores, listen, connections, end.clone()),
    );
    Ok(bound)
}

/// Waits for the database, and makes sure that it is the one and has the schema.
async fn prepare(
    context: &Context,
    direct: &Connect,
    migrate: bool,
    dead: Vec<Predecessor>,
    systemd: &Systemd,
) -> anyhow::Result<()> {
    let schedule = engine::backoff();
    let mut failures = 0;
    loop {
        let prepared = async {
            if migrate {
                match migrate::migrate(direct).await {
                    Ok(steps) => {
                        for step in steps {
                            tracing::info!("applied migration {} ({})", step.version, step.name);
                        }
                    }
                    // Whether this program can work with a newer schema is looked at below.
                    Err(MigrateError::Newer { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            context.store.check_schema().await?;
            look_at_origin(context).await?;
            if context.may_go_on() {
                // First what leaves have said, then what nobody knows.
                engine::replay(context).await?;
                for predecessor in &dead {
                    engine::take_over(context, predecessor).await?;
                }
            }
            Ok(())
        };
        match prepared.await {
            Ok(()) => {
                dead.into_iter().for_each(Predecessor::forget);
                return Ok(());
            }
            Err(MigrateError::Store(error)) if !needs_a_person(&error) => {
                failures += 1;
                context.failed(&error);
                // Nobody has to mend anything: who starts units must not wait for the database, nor give this one up.
                systemd.ready();
                tokio::time::sleep(schedule.delay(failures, None)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A refused login, a database that does not exist, a missing right: waiting does not help (PostgreSQL,
/// appendix A: classes 28, 3D and 42).
fn needs_a_person(error: &StoreError) -> bool {
    let code = error.code().or_else(|| error.refused_connection());
    code.is_some_and(|code| {
        ["28", "3D", "42"]
            .iter()
            .any(|class| code.code().starts_with(class))
    })
}

/// At start there is no witness of what was committed: any difference stops all sending.
async fn look_at_origin(context: &Context) -> Result<(), StoreError> {
    let origin = context.store.origin().await?;
    if origin.was.is_none() {
        return context.store.keep_identity(&origin.is).await;
    }
    if origin.change.is_none() && origin.only_timeline_differs() {
        let others = context.store.members().await?;
        if others.iter().any(|member| member.alive) {
            // They were there before the failover, and know whether anything was lost.
            let why = "others are still looking whether the failover lost anything";
            return Err(StoreError::other("start after a failover", why));
        }
    }
    let said = origin.change.is_some();
    if let Some(difference) = origin.changed() {
        context.stop_all_sending();
        context.observer.emit(Observation::DatabaseChanged {
            difference: &difference,
        });
        if !said {
            context.store.halt(&difference).await?;
        }
    }
    Ok(())
}

/// What it takes to read the configuration again.
struct Reloads<'run> {
    context: &'run Context,
    file: &'run Path,
    current: Config,
    env: Env<'static>,
    systemd: &'run Systemd,
}

impl Reloads<'_> {
    /// Runs until a signal asks for a stop; reloads in between, also while the database is waited for.
    async fn until_stop(&mut self, signals: &mut Signals) {
        while signals.next().await != Asked::Stop {
            self.systemd.reloading();
            let reloaded = self.reload();
            let failed = reloaded.is_err();
            self.context.observer.set_refused(Refused::Reload, failed);
            if let Err(error) = reloaded {
                tracing::error!("the configuration is refused, the former one stays: {error:#}");
            }
            self.systemd.ready();
        }
    }

    fn reload(&mut self) -> anyhow::Result<()> {
        let context = self.context;
        let config = Config::load(self.file, self.env)?;
        context.lanes.configure(&config)?;
        for lane in context.lanes.all() {
            context.observer.metrics().touch(&lane.name);
            // Its address and its secrets may be others.
            context.close_breaker(&lane, "the configuration was read again");
        }
        context.set_dispatch(config.dispatch.clone());
        context.set_retention(config.retention.clone());
        for setting in Config::changes_needing_restart(&self.current, &config) {
            tracing::warn!("{setting} has changed: that takes effect at the next start");
        }
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        context.nudges.members.give();
        context.nudges.work.give();
        // Its interval may be a shorter one.
        context.nudges.look.give();
        // What was just being claimed for a leaf that is gone is given back.
        context.question_claims();
        let leaves = context.lanes.names().join(", ");
        tracing::info!(leaves, "the configuration was read again");
        self.current = config;
        Ok(())
    }
}

/// How long a command waits for the database at most.
pub const COMMAND_WAIT: Duration = Duration::from_secs(15);
