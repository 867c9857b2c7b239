// graphile-worker (Node) as the comparison runs it: each job's payload is POSTed to the leaf.
// DATABASE_URL, LEAF_URL, CONCURRENCY; MODE is migrate or run. It has no way to take over soon from one that was
// killed: what that one held stays locked for four hours.
const { run, runMigrations, Logger } = require("graphile-worker");
const { Pool } = require("undici");

const { DATABASE_URL, LEAF_URL, CONCURRENCY, MODE } = process.env;
const concurrency = Number(CONCURRENCY);
const leaf = new Pool(LEAF_URL, { connections: concurrency, pipelining: 1 });

async function call(payload) {
  const answer = await leaf.request({
    path: "/",
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(payload),
  });
  await answer.body.text();
  if (answer.statusCode >= 300) throw new Error(`status ${answer.statusCode}`);
}

async function main() {
  // Only what goes wrong is logged: a line for each job would be a benchmark of the log.
  const logger = new Logger(() => (level, message) => {
    if (level === "error" || level === "warning") console.error(level, message);
  });
  if (MODE === "migrate") {
    await runMigrations({ connectionString: DATABASE_URL, logger });
    await leaf.close();
    return;
  }
  const runner = await run({
    logger,
    noHandleSignals: true,
    taskList: { call },
    preset: {
      worker: {
        connectionString: DATABASE_URL,
        maxPoolSize: 20,
        pollInterval: 1000,
        concurrentJobs: concurrency,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  await runner.promise;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
