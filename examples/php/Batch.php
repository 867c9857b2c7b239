<?php

declare(strict_types=1);

/** One call: a row of leafhopper.outbox. */
final class Call
{
    public function __construct(
        public readonly string $leaf,
        public readonly string $key,
        public readonly string $path,
        public readonly array $body,
        public readonly string $method = 'POST',
    ) {
    }

    /** Inserts it on the connection whose transaction it belongs to; gives its id. */
    public function insert(PDO $db, ?string $batch = null, string $runWhen = 'ready'): int
    {
        $insert = $db->prepare(
            'INSERT INTO leafhopper.outbox (leaf, key, method, path, body, batch_id, run_when)
             VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id'
        );
        // An empty array has to be an object here.
        $body = json_encode((object) $this->body, JSON_THROW_ON_ERROR);
        $insert->execute([$this->leaf, $this->key, $this->method, $this->path, $body, $batch, $runWhen]);
        return (int) $insert->fetchColumn();
    }
}

/**
 * Calls that stand or fall together, said as Laravel's Bus::batch is:
 *
 *     Batch::of($site, $charge)->then($welcome)->catch($sorry)->finally($report)->dispatch($db);
 *
 * What follows are calls, not closures: they are sent also where this process is gone by then.
 */
final class Batch
{
    /** @var list<array{Call, string}> */
    private array $calls = [];
    private string $name = '';
    private bool $allowsFailures = false;

    public static function of(Call ...$calls): self
    {
        return (new self())->with('ready', $calls);
    }

    public function name(string $name): self
    {
        $this->name = $name;
        return $this;
    }

    /** A failure cancels nothing, and nothing is undone. */
    public function allowFailures(): self
    {
        $this->allowsFailures = true;
        return $this;
    }

    /** When all are confirmed. */
    public function then(Call ...$calls): self
    {
        return $this->with('batch_succeeded', $calls);
    }

    /** When one has failed, and what was confirmed is undone. */
    public function catch(Call ...$calls): self
    {
        return $this->with('batch_failed', $calls);
    }

    /** Last, either way. */
    public function finally(Call ...$calls): self
    {
        return $this->with('batch_settled', $calls);
    }

    /**
     * Inserts all of it on the connection whose transaction it belongs to.
     *
     * @return array{string, list<int>} the batch's id, and those of its calls in their order
     */
    public function dispatch(PDO $db): array
    {
        $batch = $db->query('SELECT gen_random_uuid()')->fetchColumn();
        $insert = $db->prepare('INSERT INTO leafhopper.batch (id, name, allow_failures) VALUES (?, ?, ?)');
        $insert->bindValue(1, $batch);
        $insert->bindValue(2, $this->name);
        $insert->bindValue(3, $this->allowsFailures, PDO::PARAM_BOOL);
        $insert->execute();
        $ids = array_map(fn (array $call) => $call[0]->insert($db, $batch, $call[1]), $this->calls);
        return [$batch, $ids];
    }

    private function with(string $runWhen, array $calls): self
    {
        foreach ($calls as $call) {
            $this->calls[] = [$call, $runWhen];
        }
        return $this;
    }
}
