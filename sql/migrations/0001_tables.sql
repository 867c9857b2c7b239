-- The tables: what the app writes, and what the sidecar keeps.
-- Locks:    none on a table that was there.
-- Reads:    none.
-- Breaking: no.
--
-- Who writes what: the app writes outbox (INSERT only) and batch; the sidecar writes all else.
-- States and reasons are text with a CHECK, not enums: a new one must not need a type that poolers and
-- older clients look up by name.

CREATE SCHEMA IF NOT EXISTS leafhopper;

-- What is applied. A program that knows less than `oldest_reader` refuses to run. Its own row comes first
-- in each migration, so that of two at once one fails before it has changed anything.
CREATE TABLE leafhopper.schema_version (
    version       integer     PRIMARY KEY,
    name          text        NOT NULL,
    oldest_reader integer     NOT NULL,
    applied_at    timestamptz NOT NULL DEFAULT now()
);
INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (1, 'tables', 1);

-- ---------------------------------------------------------------------------------------------------
-- The intent, as the app said it. Written once, never updated. Its rules are in 0002.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.outbox (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    leaf          text COLLATE "C"        NOT NULL,
    key           text COLLATE "C"        NOT NULL DEFAULT gen_random_uuid()::text,
    method        text        NOT NULL DEFAULT 'POST',
    path          text        NOT NULL,
    headers       jsonb       NOT NULL DEFAULT '{}',
    body          jsonb,
    body_raw      bytea,
    content_type  text,
    batch_id      uuid,
    run_when      text        NOT NULL DEFAULT 'ready',
    ordering_key  text COLLATE "C",
    priority      smallint    NOT NULL DEFAULT 0,
    not_before    timestamptz,
    deadline      timestamptz,
    max_attempts  integer,
    timeout       interval,
    credential    text,
    probe         jsonb,
    compensate    jsonb,
    meta          jsonb       NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    -- The call whose effect this one undoes; only the sidecar writes it.
    undoes        bigint
);

-- Look-ups by effect key: siblings of a call, confirm(), forget().
CREATE INDEX outbox_key ON leafhopper.outbox (leaf, key);
-- The calls of one batch.
CREATE INDEX outbox_batch ON leafhopper.outbox (batch_id) WHERE batch_id IS NOT NULL;
-- An effect has one compensation, however many instances make it at once.
CREATE UNIQUE INDEX outbox_compensation ON leafhopper.outbox (leaf, key) WHERE undoes IS NOT NULL;

-- ---------------------------------------------------------------------------------------------------
-- Where a live call stands. One narrow row for each call that is not final; deleted when it ends.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.dispatch (
    call_id          bigint      PRIMARY KEY,
    leaf             text COLLATE "C"        NOT NULL,
    -- The effect key that excludes others; a compensation holds the key that it undoes.
    key              text COLLATE "C"        NOT NULL,
    ordering_key     text COLLATE "C",
    batch_id         uuid,
    run_when         text        NOT NULL,
    -- Of a compensation: the call whose effect it undoes.
    undoes           bigint,
    priority         smallint    NOT NULL,
    credential       text,
    timeout          interval,
    deadline         timestamptz,
    state            text        NOT NULL DEFAULT 'pending',
    -- Why a pending call may not be claimed whatever the time:
    --   arrived  has an ordering key and was not looked at yet
    --   order    another call of its ordering key is the head
    --   key      another call of its effect key is under way, in doubt or parked
    --   batch    a follow-up whose phase has not begun, or a compensation whose request is to be made anew
    held             text,
    -- NULL: due since it was enqueued ("fresh"). In doubt: when it is looked at next.
    due_at           timestamptz,
    deferred_since   timestamptz, -- it was due, and there was no credential for it: due_at was put off since
    enqueued_at      timestamptz NOT NULL,
    -- What is spent of max_attempts, and every claim ever made; the latter numbers the attempts.
    attempts         integer     NOT NULL DEFAULT 0,
    tries            integer     NOT NULL DEFAULT 0,
    -- Probes whose answer was unclear, in this doubt.
    probes           integer     NOT NULL DEFAULT 0,
    crashes          integer     NOT NULL DEFAULT 0,
    -- The latest claim. It stays when the claim is over: "no newer attempt has begun" is that these match.
    instance         uuid,
    round            bigint,
    claimed_at       timestamptz,
    -- When the latest attempt can last have been alive.
    alive_until      timestamptz,
    first_claimed_at timestamptz,
    give_up_at       timestamptz,
    in_doubt_since   timestamptz,
    resend           boolean     NOT NULL DEFAULT false, -- in doubt and to be resolved by sending the same request again
    -- Its batch is cancelled: the resend is the question whether it was executed. What it confirms is undone.
    resend_asks      boolean     NOT NULL DEFAULT false,
    -- The leaf has said that the effect exists, without showing it.
    exists_said      boolean     NOT NULL DEFAULT false,
    -- It was pending when the database lost commits: when its turn comes, the leaf is asked first.
    suspect          boolean     NOT NULL DEFAULT false,
    -- The reason given to cancel() while a request was under way or in doubt.
    cancel_requested text,
    reason           text,
    last_status      integer,
    last_error       text
) WITH (
    -- A claim is never a HOT update (PostgreSQL, chapter 73.7): the state that it changes is in the predicates of the
    -- claim's indexes. Room on the page is for what it costs all the same: a new version on another page is written to
    -- the log as a whole. The table is as small as the work in hand, so half of it empty is cheap.
    fillfactor = 50,
    -- Every call leaves two dead rows. What is dead is to be removed long before the next twenty thousand are; the
    -- pauses that a vacuum makes by default (PostgreSQL, chapter 20.10) would let it fall behind.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    -- The planner's numbers must not lag behind a backlog that comes at once.
    autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 1000
);

-- Its rules, in one constraint that calls a function: PostgreSQL reads the text of every constraint anew for each
-- statement, which for six of them costs as much as the INSERT; what a function says is planned once for each session.
-- It sets no search_path, as that would cost as much as the rules for each row: apps have no right on the table, and
-- what writes it for them has set one.
CREATE FUNCTION leafhopper.is_consistent(d leafhopper.dispatch) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF d.state = 'pending' THEN
        RETURN d.held IS NULL OR d.held IN ('arrived', 'order', 'key', 'batch');
    END IF;
    RETURN d.held IS NULL AND CASE d.state
        WHEN 'dispatching' THEN pg_catalog.num_nulls(d.instance, d.round, d.claimed_at, d.alive_until) = 0
        WHEN 'accepted' THEN true
        WHEN 'in_doubt' THEN pg_catalog.num_nulls(d.in_doubt_since, d.due_at) = 0
        WHEN 'parked' THEN d.reason IS NOT NULL
        ELSE false
    END;
END $$;
ALTER TABLE leafhopper.dispatch ADD CONSTRAINT is_consistent CHECK (leafhopper.is_consistent(dispatch));

-- Claim: fresh calls of a leaf, most urgent first. The only index beside the key that a fresh row enters.
CREATE INDEX dispatch_fresh ON leafhopper.dispatch (leaf, priority, call_id)
    WHERE state = 'pending' AND held IS NULL AND due_at IS NULL;
-- Claim: what becomes due later (not_before, retries, deferred).
CREATE INDEX dispatch_timed ON leafhopper.dispatch (leaf, due_at)
    WHERE state = 'pending' AND held IS NULL AND due_at IS NOT NULL;
-- Claim and prober: calls in doubt that are due.
CREATE INDEX dispatch_doubt ON leafhopper.dispatch (leaf, due_at)
    WHERE state = 'in_doubt';
-- G4: for one (leaf, key) at most one call under way, in doubt or parked, over all instances.
CREATE UNIQUE INDEX dispatch_one_at_a_time ON leafhopper.dispatch (leaf, key)
    WHERE state IN ('dispatching', 'in_doubt', 'parked');
-- G9: for one (leaf, ordering_key) at most one head.
CREATE UNIQUE INDEX dispatch_one_head ON leafhopper.dispatch (leaf, ordering_key)
    WHERE ordering_key IS NOT NULL AND (held IS NULL OR held = 'key');
-- Promotion of what waits for a key or behind a head.
CREATE INDEX dispatch_held_key ON leafhopper.dispatch (leaf, key, call_id) WHERE held = 'key';
CREATE INDEX dispatch_held_order ON leafhopper.dispatch (leaf, ordering_key, call_id) WHERE held = 'order';
CREATE INDEX dispatch_arrived ON leafhopper.dispatch (call_id) WHERE held = 'arrived';
-- Expirer: what ends by itself while it waits.
CREATE INDEX dispatch_ends ON leafhopper.dispatch (least(deadline, give_up_at))
    WHERE state = 'pending' AND (deadline IS NOT NULL OR give_up_at IS NOT NULL);
-- What of a batch is live.
CREATE INDEX dispatch_batch ON leafhopper.dispatch (batch_id, run_when) WHERE batch_id IS NOT NULL;

-- ---------------------------------------------------------------------------------------------------
-- Every final call that has no result of its own.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.finished (
    call_id     bigint      PRIMARY KEY,
    batch_id    uuid,
    state       text        NOT NULL,
    reason      text,
    attempts    integer     NOT NULL DEFAULT 0,
    last_status integer,
    last_error  text,
    -- Confirmed from this generation of the key's result.
    generation  integer,
    -- This end cancels its batch, and the batch's own row does not say so yet. Writing this row is the
    -- announcement: the claim looks for it. So no failing call ever waits for the batch's row.
    fails_batch boolean     NOT NULL DEFAULT false,
    finished_at timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT finished_state_is_final
        CHECK (state IN ('confirmed', 'failed', 'cancelled', 'expired')),
    CONSTRAINT confirmed_names_its_result
        CHECK ((state = 'confirmed') = (generation IS NOT NULL)),
    CONSTRAINT failed_says_why
        CHECK (state <> 'failed'
               OR reason IN ('rejected', 'attempts_exhausted', 'gave_up', 'key_conflict', 'unsendable')),
    CONSTRAINT only_calls_of_a_batch_fail_it
        CHECK (NOT fails_batch OR batch_id IS NOT NULL)
);

-- The calls of one batch, and those of them that failed.
CREATE INDEX finished_batch ON leafhopper.finished (batch_id, state) WHERE batch_id IS NOT NULL;
-- The claim's guard, and the batcher: which batches are cancelled without their row saying so?
CREATE INDEX finished_fails_batch ON leafhopper.finished (batch_id) WHERE fails_batch;
-- Lists of what failed, newest first.
CREATE INDEX finished_state ON leafhopper.finished (state, finished_at) WHERE state <> 'confirmed';

-- ---------------------------------------------------------------------------------------------------
-- The durable record: what the leaf confirmed. Written once, never overwritten.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.result (
    leaf         text COLLATE "C" NOT NULL,
    key          text COLLATE "C"        NOT NULL,
    generation   integer     NOT NULL,
    seq          bigint      GENERATED ALWAYS AS IDENTITY,
    call_id      bigint,
    -- The batch of that call.
    batch_id     uuid,
    -- The number of the attempt that was confirmed, where one was.
    attempt      integer,
    attempts     integer     NOT NULL DEFAULT 0,
    status       integer     NOT NULL,
    headers      jsonb       NOT NULL DEFAULT '{}',
    body         jsonb,
    body_raw     bytea,
    truncated    boolean     NOT NULL DEFAULT false,
    source       text        NOT NULL,
    weak         boolean     NOT NULL DEFAULT false,
    -- SHA-256 over method, path and body of the request; NULL agrees with all.
    request_hash bytea,
    confirmed_at timestamptz NOT NULL DEFAULT now(),
    undone_at    timestamptz,
    -- When an attempt of the call whose end nobody knows can last have been alive: undone, or made again, only after that.
    alive_until  timestamptz,

    PRIMARY KEY (leaf, key, generation),
    CONSTRAINT generation_starts_at_1
        CHECK (generation >= 1),
    CONSTRAINT source_is_response_adopted_application_or_operator
        CHECK (source IN ('response', 'adopted', 'application', 'operator')),
    CONSTRAINT only_one_of_result_body_and_body_raw
        CHECK (body IS NULL OR body_raw IS NULL),
    CONSTRAINT status_is_an_http_status
        CHECK (status BETWEEN 100 AND 999)
);

CREATE UNIQUE INDEX result_seq ON leafhopper.result (seq);
-- What of a batch stands, the newest first. The word of a compensation is no effect.
CREATE INDEX result_batch ON leafhopper.result (batch_id, seq)
    WHERE batch_id IS NOT NULL AND undone_at IS NULL AND key !~ ':undo:[0-9]+$';

-- ---------------------------------------------------------------------------------------------------
-- The history that people read: attempts that did not confirm, and second confirmations.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.attempt (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    call_id     bigint      NOT NULL,
    attempt     integer     NOT NULL,
    started_at  timestamptz,
    finished_at timestamptz NOT NULL DEFAULT now(),
    class       text        NOT NULL,
    status      integer,
    error       text,
    body        text,
    instance    text,

    CONSTRAINT attempt_class_is_known
        CHECK (class IN ('confirmed_again', 'exists', 'retry', 'in_doubt', 'failed', 'probe_absent', 'probe_unclear'))
);

CREATE INDEX attempt_call ON leafhopper.attempt (call_id, id);

-- ---------------------------------------------------------------------------------------------------
-- Batches: an optional row that gives a batch its options.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.batch (
    id             uuid        PRIMARY KEY,
    name           text,
    allow_failures boolean     NOT NULL DEFAULT false,
    sealed         boolean     NOT NULL DEFAULT true,
    undo_order     text        NOT NULL DEFAULT 'newest_first',
    created_at     timestamptz NOT NULL DEFAULT now(),
    state          text        NOT NULL DEFAULT 'open',
    changed_at     timestamptz NOT NULL DEFAULT now(),
    -- Since when an unsealed one has had no call that is not final.
    idle_since     timestamptz,
    -- When its last phase began, the 'batch_settled' calls.
    last_phase_at  timestamptz,
    finished_at    timestamptz, -- all its calls are final

    CONSTRAINT undo_order_is_newest_first_or_any
        CHECK (undo_order IN ('newest_first', 'any')),
    CONSTRAINT batch_state_is_known
        CHECK (state IN ('open', 'closing', 'succeeded', 'cancelling', 'compensating', 'cancelled', 'finished'))
);

CREATE INDEX batch_live ON leafhopper.batch (state) WHERE state IN ('open', 'closing', 'cancelling', 'compensating');
-- Those on their way to their end.
CREATE INDEX batch_unfinished ON leafhopper.batch (id) WHERE state <> 'open' AND finished_at IS NULL;

-- Lists, newest first.
CREATE INDEX batch_created ON leafhopper.batch (created_at, id);

-- Batches to be looked at. Whatever changes one leaves a mark in its own transaction: who finds it sees the change.
CREATE TABLE leafhopper.batch_mark (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch_id uuid   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- ---------------------------------------------------------------------------------------------------
-- The sidecars, and what people told them.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.instance (
    id           uuid        PRIMARY KEY,
    name         text        NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    beat         bigint      NOT NULL DEFAULT 1,
    lease        interval    NOT NULL,
    -- By leaf: {"credentials": [...], "blocked": [...], "breaker_open": bool, "rate_limited": bool, "compensates": bool}.
    -- An empty string among credentials and blocked stands for the leaf's own auth.
    leaves       jsonb       NOT NULL DEFAULT '{}',
    -- The timeline on which this instance has found all that it knows to be committed.
    witnessed_timeline integer,
    -- The membership that this instance's shares of the limits rest on.
    membership   text        NOT NULL DEFAULT ''
);

CREATE TABLE leafhopper.leaf_control (
    leaf                   text COLLATE "C"        PRIMARY KEY,
    paused                 boolean     NOT NULL DEFAULT false,
    hold_after_failed_head boolean     NOT NULL DEFAULT false,
    -- A person said "resume": breakers that opened before are closed.
    resumed_at             timestamptz,
    updated_at             timestamptz NOT NULL DEFAULT now()
);

-- An ordering key whose head failed at a leaf that holds those behind it.
CREATE TABLE leafhopper.order_hold (
    leaf         text COLLATE "C" NOT NULL,
    ordering_key text COLLATE "C"        NOT NULL,
    head         bigint      NOT NULL,
    held_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (leaf, ordering_key)
);
CREATE INDEX order_hold_head ON leafhopper.order_hold (head);

CREATE TABLE leafhopper.operator_action (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT now(),
    actor    text        NOT NULL,
    action   text        NOT NULL,
    call_id  bigint,
    batch_id uuid,
    leaf     text COLLATE "C",
    reason   text        NOT NULL,
    detail   jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX operator_action_call ON leafhopper.operator_action (call_id) WHERE call_id IS NOT NULL;
CREATE INDEX operator_action_batch ON leafhopper.operator_action (batch_id) WHERE batch_id IS NOT NULL;

-- Which database this is. One row, written by the first instance that runs.
CREATE TABLE leafhopper.origin (
    only_row          boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    system_identifier bigint      NOT NULL,
    timeline          integer     NOT NULL,
    database_name     text        NOT NULL,
    database_oid      bigint      NOT NULL,
    -- Set: the identity differs, nothing is sent until a person says how to go on.
    changed_at        timestamptz,
    change            text
);

-- What the view and the commands must agree on; written by an instance at start.
CREATE TABLE leafhopper.setting (
    name  text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO leafhopper.setting VALUES ('stuck_after', '5 minutes');

-- The mark that an instance sleeps until this millisecond of the epoch: an insert notifies only then.
-- A sequence, because its last_value is outside transactions: no producer waits for another to read it.
CREATE SEQUENCE leafhopper.sleeping_until MINVALUE 0 START 0 NO CYCLE;

REVOKE ALL ON SCHEMA leafhopper FROM PUBLIC;

COMMENT ON SCHEMA leafhopper IS 'Calls to remote services, written by the app, made and recorded by leafhopper.';
COMMENT ON TABLE leafhopper.outbox IS 'One row for each call: the intent. The app inserts, nobody updates.';
COMMENT ON TABLE leafhopper.dispatch IS 'Where each call that is not final stands. Written by the sidecar.';
COMMENT ON TABLE leafhopper.finished IS 'Calls that are final without a result of their own.';
COMMENT ON TABLE leafhopper.result IS 'What leaves confirmed: one row for each (leaf, key, generation).';
COMMENT ON TABLE leafhopper.attempt IS 'Attempts that did not confirm, and second confirmations.';
