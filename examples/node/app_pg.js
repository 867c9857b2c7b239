#!/usr/bin/env node
// The app with pg; `follow` reacts by LISTEN.
//
//   app_pg.js create NAME           one call
//   app_pg.js launch NAME AMOUNT    a batch: site and charge, or neither
//   app_pg.js follow                marks sites as live or failed, until Ctrl-C
const { randomUUID } = require("node:crypto");
const pg = require("pg");

async function inTransaction(client, work) {
  await client.query("BEGIN");
  try {
    const result = await work();
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

async function call(client, leaf, key, path, body, batch = null, runWhen = "ready") {
  const { rows } = await client.query(
    `INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, run_when)
     VALUES ($1, $2, $3, $4, $5, $6) RETURNING id`,
    // As text: pg would make a PostgreSQL array of an array.
    [leaf, key, path, JSON.stringify(body), batch, runWhen],
  );
  return rows[0].id;
}

// The site, the call that makes it, and what the account pays for it: all of it, or nothing.
async function newSite(client, name, batch = null) {
  const { rows } = await client.query(
    "INSERT INTO site (name, batch_id) VALUES ($1, $2) RETURNING id", [name, batch]);
  const site = rows[0].id;
  const callId = await call(client, "hosting", `site:${site}`, "/sites", { name }, batch);
  await client.query("UPDATE site SET call_id = $1 WHERE id = $2", [callId, site]);
  // Without credit this fails, and no call is made.
  await client.query("UPDATE account SET credit = credit - 1 WHERE id = 1");
  return site;
}

async function create(client, name) {
  const site = await inTransaction(client, () => newSite(client, name));
  console.log(`site ${site} is requested`);
}

async function launch(client, name, amount) {
  const batch = randomUUID();
  const site = await inTransaction(client, async () => {
    const site = await newSite(client, name, batch);
    await call(client, "pay", `site:${site}:charge`, "/charges", { amount: Number(amount) }, batch);
    await call(client, "mail", `site:${site}:welcome`, "/messages", { say: "welcome" }, batch, "batch_succeeded");
    await call(client, "mail", `site:${site}:sorry`, "/messages", { say: "sorry" }, batch, "batch_failed");
    return site;
  });
  console.log(`site ${site} is requested, in batch ${batch}`);
}

async function follow(client) {
  let wake;
  let woken;
  const rearm = () => { woken = new Promise((resolve) => { wake = resolve; }); };
  rearm();
  // Before LISTEN, so that none is missed.
  client.on("notification", () => wake());
  await client.query("LISTEN leafhopper_result");
  await client.query("LISTEN leafhopper_call");
  for (;;) {
    rearm();
    // First, for what happened while nobody listened.
    const { rows } = await client.query(
      `UPDATE site SET status = o.status, remote_id = o.remote_id
         FROM site_outcome o WHERE o.site_id = site.id AND o.status IS NOT NULL
       RETURNING site.name, site.status`);
    for (const { name, status } of rows) console.log(`${name} is ${status}`);
    // A notification is a hint: it says that there is something, and may be lost with a connection.
    const timer = setTimeout(wake, 30_000);
    await woken;
    clearTimeout(timer);
  }
}

const commands = { create, launch, follow };

async function main([command, ...args]) {
  if (!(command in commands)) throw new Error(`one of: ${Object.keys(commands).join(", ")}`);
  const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    await commands[command](client, ...args);
  } catch (error) {
    if (error.code !== "23514") throw error;
    console.error(`nothing is requested: ${error.message}`);
    process.exitCode = 1;
  } finally {
    await client.end();
  }
}

main(process.argv.slice(2));
