#!/usr/bin/env php
<?php

/*
 * The app with PDO. A web app has no process that could wait: ../trigger reacts, in the database.
 *
 *   app.php create NAME           one call
 *   app.php launch NAME AMOUNT    a batch: site and charge, or neither
 *   app.php show NAME             where it stands
 */

declare(strict_types=1);

require __DIR__ . '/Batch.php';

function inTransaction(PDO $db, callable $work): mixed
{
    $db->beginTransaction();
    try {
        $result = $work();
        $db->commit();
        return $result;
    } catch (Throwable $error) {
        $db->rollBack();
        throw $error;
    }
}

function insertSite(PDO $db, string $name): int
{
    $insert = $db->prepare('INSERT INTO site (name) VALUES (?) RETURNING id');
    $insert->execute([$name]);
    return (int) $insert->fetchColumn();
}

/** Without credit this fails, and no call is made. */
function pay(PDO $db): void
{
    $db->exec('UPDATE account SET credit = credit - 1 WHERE id = 1');
}

function create(PDO $db, string $name): void
{
    $site = inTransaction($db, function () use ($db, $name) {
        $site = insertSite($db, $name);
        $call = (new Call('hosting', "site:$site", '/sites', ['name' => $name]))->insert($db);
        $db->prepare('UPDATE site SET call_id = ? WHERE id = ?')->execute([$call, $site]);
        pay($db);
        return $site;
    });
    echo "site $site is requested\n";
}

function launch(PDO $db, string $name, string $amount): void
{
    [$site, $batch] = inTransaction($db, function () use ($db, $name, $amount) {
        $site = insertSite($db, $name);
        [$batch, $calls] = Batch::of(
            new Call('hosting', "site:$site", '/sites', ['name' => $name]),
            new Call('pay', "site:$site:charge", '/charges', ['amount' => (int) $amount]),
        )
            ->name("launch of $name")
            ->then(new Call('mail', "site:$site:welcome", '/messages', ['say' => 'welcome']))
            ->catch(new Call('mail', "site:$site:sorry", '/messages', ['say' => 'sorry']))
            ->dispatch($db);
        $db->prepare('UPDATE site SET call_id = ?, batch_id = ? WHERE id = ?')->execute([$calls[0], $batch, $site]);
        pay($db);
        return [$site, $batch];
    });
    echo "site $site is requested, in batch $batch\n";
}

/** What failed before it had an effect has no result, and the trigger does not see it; site_outcome does. */
function show(PDO $db, string $name): void
{
    $select = $db->prepare(
        'SELECT coalesce(o.status, s.status), s.remote_id
           FROM site s LEFT JOIN site_outcome o ON o.site_id = s.id WHERE s.name = ?'
    );
    $select->execute([$name]);
    foreach ($select->fetchAll(PDO::FETCH_NUM) as [$status, $remote]) {
        echo "$name is $status", $remote === null ? '' : ", as $remote", "\n";
    }
}

/** PDO wants its own words for what others know as postgres://. */
function connect(string $url): PDO
{
    $part = fn (int $component) => rawurldecode((string) parse_url($url, $component));
    $port = parse_url($url, PHP_URL_PORT) ?: 5432;
    $database = ltrim($part(PHP_URL_PATH), '/');
    $source = "pgsql:host={$part(PHP_URL_HOST)};port=$port;dbname='$database'";
    return new PDO($source, $part(PHP_URL_USER), $part(PHP_URL_PASS), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

$command = ['create' => create(...), 'launch' => launch(...), 'show' => show(...)][$argv[1] ?? ''] ?? null;
if ($command === null) {
    fwrite(STDERR, "app.php create NAME | launch NAME AMOUNT | show NAME\n");
    exit(2);
}
try {
    $command(connect(getenv('DATABASE_URL')), ...array_slice($argv, 2));
} catch (PDOException $error) {
    if ($error->getCode() !== '23514') {
        throw $error;
    }
    fwrite(STDERR, "nothing is requested: {$error->getMessage()}\n");
    exit(1);
}
