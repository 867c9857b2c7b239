#!/usr/bin/env node
// The app with knex; `follow` polls the results by seq.
//
//   app_knex.js create NAME           one call
//   app_knex.js launch NAME AMOUNT    a batch: site and charge, or neither
//   app_knex.js follow                marks sites as live or failed, until Ctrl-C
const { randomUUID } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");

const knex = require("knex")({ client: "pg", connection: process.env.DATABASE_URL });

// One INSERT takes any number of calls; `trx` is the transaction that they belong to.
const calls = (trx, rows) => trx.withSchema("leafhopper").insert(rows, ["id"]).into("outbox");

// The site, the call that makes it, and what the account pays for it: all of it, or nothing.
async function newSite(trx, name, batch = null) {
  const [{ id: site }] = await trx("site").insert({ name, batch_id: batch }, ["id"]);
  const [{ id }] = await calls(trx, {
    leaf: "hosting", key: `site:${site}`, path: "/sites", body: { name }, batch_id: batch,
  });
  await trx("site").where({ id: site }).update({ call_id: id });
  // Without credit this fails, and no call is made.
  await trx("account").where({ id: 1 }).decrement("credit");
  return site;
}

async function create(name) {
  const site = await knex.transaction((trx) => newSite(trx, name));
  console.log(`site ${site} is requested`);
}

async function launch(name, amount) {
  const batch = randomUUID();
  const site = await knex.transaction(async (trx) => {
    const site = await newSite(trx, name, batch);
    const mail = (say, runWhen) => ({
      leaf: "mail", key: `site:${site}:${say}`, path: "/messages", body: { say }, batch_id: batch, run_when: runWhen,
    });
    await calls(trx, {
      leaf: "pay", key: `site:${site}:charge`, path: "/charges", body: { amount: Number(amount) }, batch_id: batch,
    });
    await calls(trx, [mail("welcome", "batch_succeeded"), mail("sorry", "batch_failed")]);
    return site;
  });
  console.log(`site ${site} is requested, in batch ${batch}`);
}

async function follow() {
  await knex("reader").insert({ name: "sites" }).onConflict("name").ignore();
  for (;;) {
    await knex.transaction(read);
    await sleep(1000);
  }
}

async function read(trx) {
  const { seq } = await trx("reader").where({ name: "sites" }).forUpdate().first();
  const results = trx.withSchema("leafhopper").from("result").where("seq", ">", seq);
  for (const result of await results.clone().select("leaf", "key", "body").orderBy("seq")) {
    await take(trx, result);
  }
  // A lower seq can become visible after a higher one, as its transaction ends later. So what is younger than a
  // minute is read again, and to take a result twice changes nothing.
  const settled = results.where("confirmed_at", "<", knex.raw("now() - interval '1 minute'")).max("seq");
  await trx("reader").where({ name: "sites" }).update({ seq: knex.raw("greatest(seq, (?))", [settled]) });
  // What ends without a result has none to be read.
  await trx.raw(`UPDATE site SET status = 'failed'
                   FROM site_outcome o WHERE o.site_id = site.id AND o.status = 'failed'`);
}

async function take(trx, { leaf, key, body }) {
  const [, site, undone] = key.match(/^site:(\d+)(:undo:\d+)?$/) ?? [];
  if (leaf !== "hosting" || !site) return;
  // What a person has confirmed may have no body.
  const changed = undone
    ? await trx("site").where({ id: site }).whereNot({ status: "failed" }).update({ status: "failed" }, ["*"])
    : await trx("site").where({ id: site, status: "requested" }).update({ status: "live", remote_id: body?.id }, ["*"]);
  for (const { name, status } of changed) console.log(`${name} is ${status}`);
}

const commands = { create, launch, follow };

async function main([command, ...args]) {
  if (!(command in commands)) throw new Error(`one of: ${Object.keys(commands).join(", ")}`);
  try {
    await commands[command](...args);
  } catch (error) {
    if (error.code !== "23514") throw error;
    console.error(`nothing is requested: ${error.message}`);
    process.exitCode = 1;
  } finally {
    await knex.destroy();
  }
}

main(process.argv.slice(2));
