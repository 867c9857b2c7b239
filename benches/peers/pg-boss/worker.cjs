// pg-boss (Node) as the comparison runs it: each job's data is POSTed to the leaf, and the answer stored as its output.
// DATABASE_URL, LEAF_URL, CONCURRENCY; MODE is migrate, run, or recover: run, and notice soon that one was killed.
const { PgBoss } = require("pg-boss");
const { Pool } = require("undici");

const { DATABASE_URL, LEAF_URL, CONCURRENCY, MODE } = process.env;
const concurrency = Number(CONCURRENCY);
const leaf = new Pool(LEAF_URL, { connections: concurrency, pipelining: 1 });
const BATCH = 64;

async function call(job) {
  try {
    const answer = await leaf.request({
      path: "/",
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(job.data),
    });
    const output = await answer.body.json();
    return { id: job.id, status: answer.statusCode < 300 ? "completed" : "failed", output };
  } catch (error) {
    return { id: job.id, status: "failed", output: { message: String(error) } };
  }
}

async function main() {
  const recover = MODE === "recover";
  const boss = new PgBoss({
    connectionString: DATABASE_URL,
    max: 20,
    useListenNotify: true,
    ...(recover ? { superviseIntervalSeconds: 1, monitorIntervalSeconds: 1 } : {}),
  });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  if (MODE === "migrate") {
    await boss.createQueue("call", { notify: true });
    await boss.stop({ graceful: false });
    await leaf.close();
    return;
  }
  if (recover) await boss.updateQueue("call", { heartbeatSeconds: 10 });
  const options = {
    batchSize: BATCH,
    localConcurrency: Math.max(1, concurrency / BATCH),
    perJobResults: true,
    burstWhenBatchFull: true,
    // What is retried is announced to nobody.
    ...(recover ? { pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 } : {}),
  };
  await boss.work("call", options, (jobs) => Promise.all(jobs.map(call)));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
