-- The first schema: everything of the public contract, section 2.
-- Locks:    none that anybody waits for; all of it is new.
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
INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (1, 'leafhopper', 1);

-- ---------------------------------------------------------------------------------------------------
-- The intent, as the app said it. Written once, never updated.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.outbox (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    leaf          text        NOT NULL,
    key           text        NOT NULL DEFAULT gen_random_uuid()::text,
    method        text        NOT NULL DEFAULT 'POST',
    path          text        NOT NULL,
    headers       jsonb       NOT NULL DEFAULT '{}',
    body          jsonb,
    body_raw      bytea,
    content_type  text,
    batch_id      uuid,
    run_when      text        NOT NULL DEFAULT 'ready',
    ordering_key  text,
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
    undoes        bigint,

    CONSTRAINT leaf_is_1_to_100_characters
        CHECK (char_length(leaf) BETWEEN 1 AND 100),
    CONSTRAINT key_is_1_to_200_characters
        CHECK (char_length(key) BETWEEN 1 AND 200),
    CONSTRAINT key_does_not_end_in_undo_and_digits
        CHECK ((key ~ ':undo:[0-9]+$') = (undoes IS NOT NULL)),
    CONSTRAINT method_is_get_head_post_put_patch_or_delete
        CHECK (method IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')),
    CONSTRAINT path_starts_with_exactly_one_slash
        CHECK (path ~ '^/([^/]|$)'),
    CONSTRAINT path_is_visible_ascii_without_backslash_or_fragment
        CHECK (path ~ '^[!-~]+$' AND path !~ '[\\#]'),
    CONSTRAINT path_has_no_dot_segment_in_any_encoding
        CHECK (split_part(path, '?', 1)
               !~* '(^|/|%(25)*(2f|5c))(\.|%(25)*2e){1,2}(;|$|/|%(25)*(2f|5c))'),
    -- What a URL parser would write in another way: the request must be the one that was asked for.
    CONSTRAINT path_has_no_character_that_a_url_must_escape
        CHECK (split_part(path, '?', 1) !~ '["<>{}`]' AND path !~ '[?].*["''<>]'),
    CONSTRAINT path_percent_signs_are_escapes
        CHECK (path !~* '%([^0-9a-f]|.[^0-9a-f]|.?$)'),
    CONSTRAINT path_is_at_most_8000_characters
        CHECK (char_length(path) <= 8000),
    CONSTRAINT headers_are_an_object_of_strings
        CHECK (jsonb_typeof(headers) = 'object'
               AND NOT jsonb_path_exists(headers, '$.keyvalue() ? (@.value.type() != "string")', silent => true)),
    CONSTRAINT header_names_are_http_tokens
        CHECK (NOT jsonb_path_exists(headers,
               '$.keyvalue() ? (!(@.key like_regex "^[-!#$%&''*+.^_`|~0-9A-Za-z]+$"))', silent => true)),
    CONSTRAINT header_names_are_unique_in_any_case
        CHECK (headers = '{}'
               OR jsonb_array_length(jsonb_path_query_array(headers, '$.keyvalue()', silent => true))
                = jsonb_array_length(jsonb_path_query_array(lower(headers::text)::jsonb, '$.keyvalue()', silent => true))),
    CONSTRAINT header_values_are_visible_ascii
        CHECK (NOT jsonb_path_exists(headers,
               '$.keyvalue() ? (!(@.value like_regex "^([!-~]([ -~]*[!-~])?)?$"))', silent => true)),
    CONSTRAINT headers_do_not_frame_or_route
        CHECK (NOT jsonb_path_exists(headers,
               '$.keyvalue() ? (@.key like_regex "^(host|content-length|connection|keep-alive|proxy-connection|proxy-authenticate|proxy-authorization|te|trailer|transfer-encoding|upgrade|expect)$" flag "i")', silent => true)),
    CONSTRAINT content_type_is_not_among_the_headers
        CHECK (NOT jsonb_path_exists(headers, '$.keyvalue() ? (@.key like_regex "^content-type$" flag "i")', silent => true)),
    CONSTRAINT only_one_of_body_and_body_raw
        CHECK (body IS NULL OR body_raw IS NULL),
    CONSTRAINT content_type_goes_with_body_raw_and_only_with_it
        CHECK ((body_raw IS NOT NULL) = (content_type IS NOT NULL)),
    CONSTRAINT content_type_is_visible_ascii
        CHECK (content_type ~ '^[!-~]([ -~]{0,198}[!-~])?$'),
    CONSTRAINT run_when_is_ready_or_a_batch_phase
        CHECK (run_when IN ('ready', 'batch_succeeded', 'batch_failed', 'batch_settled')),
    CONSTRAINT run_when_other_than_ready_needs_a_batch
        CHECK (run_when = 'ready' OR batch_id IS NOT NULL),
    CONSTRAINT ordering_key_is_1_to_200_characters
        CHECK (char_length(ordering_key) BETWEEN 1 AND 200),
    CONSTRAINT max_attempts_is_at_least_1
        CHECK (max_attempts >= 1),
    CONSTRAINT timeout_is_above_zero_and_at_most_a_day
        CHECK (timeout > interval '0' AND timeout <= interval '1 day'),
    CONSTRAINT credential_is_1_to_200_characters
        CHECK (char_length(credential) BETWEEN 1 AND 200),
    CONSTRAINT probe_is_an_object_with_a_path
        CHECK (probe IS NULL OR coalesce(
               jsonb_typeof(probe) = 'object'
               AND jsonb_typeof(probe -> 'path') = 'string' AND probe ->> 'path' LIKE '/%'
               AND coalesce(probe ->> 'method' IN ('GET', 'HEAD'), true)
               AND NOT jsonb_path_exists(probe,
                   '$.keyvalue() ? (!(@.key like_regex "^(method|path|found|settle|max_probes)$"))', silent => true), false)),
    CONSTRAINT compensate_is_an_object_with_method_and_path
        CHECK (compensate IS NULL OR coalesce(
               jsonb_typeof(compensate) = 'object'
               AND compensate ->> 'method' IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')
               AND jsonb_typeof(compensate -> 'path') = 'string' AND compensate ->> 'path' LIKE '/%'
               AND NOT jsonb_path_exists(compensate,
                   '$.keyvalue() ? (!(@.key like_regex "^(method|path|body)$"))', silent => true), false)),
    CONSTRAINT meta_is_an_object
        CHECK (jsonb_typeof(meta) = 'object')
);

-- Look-ups by effect key: siblings of a call, confirm(), forget().
CREATE INDEX outbox_key ON leafhopper.outbox (leaf, key);
-- The calls of one batch.
CREATE INDEX outbox_batch ON leafhopper.outbox (batch_id) WHERE batch_id IS NOT NULL;

-- ---------------------------------------------------------------------------------------------------
-- Where a live call stands. One narrow row for each call that is not final; deleted when it ends.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.dispatch (
    call_id          bigint      PRIMARY KEY,
    leaf             text        NOT NULL,
    -- The effect key that excludes others; a compensation holds the key that it undoes.
    key              text        NOT NULL,
    ordering_key     text,
    batch_id         uuid,
    run_when         text        NOT NULL,
    priority         smallint    NOT NULL,
    credential       text,
    timeout          interval,
    deadline         timestamptz,
    state            text        NOT NULL DEFAULT 'pending',
    -- Why a pending call may not be claimed whatever the time:
    --   arrived  has an ordering key and was not looked at yet
    --   order    another call of its ordering key is the head
    --   key      another call of its effect key is under way, in doubt or parked
    --   batch    a follow-up whose phase has not begun
    held             text,
    -- NULL: due since it was enqueued ("fresh"). In doubt: when it is looked at next.
    due_at           timestamptz,
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
    -- In doubt and to be resolved by sending the same request again.
    resend           boolean     NOT NULL DEFAULT false,
    -- The leaf has said that the effect exists, without showing it.
    exists_said      boolean     NOT NULL DEFAULT false,
    -- The reason given to cancel() while a request was under way or in doubt.
    cancel_requested text,
    reason           text,
    last_status      integer,
    last_error       text,

    CONSTRAINT dispatch_state_is_known
        CHECK (state IN ('pending', 'dispatching', 'accepted', 'in_doubt', 'parked')),
    CONSTRAINT held_calls_are_pending
        CHECK (held IS NULL OR state = 'pending'),
    CONSTRAINT held_is_known
        CHECK (held IN ('arrived', 'order', 'key', 'batch')),
    CONSTRAINT dispatching_names_its_claim
        CHECK (state <> 'dispatching' OR (instance IS NOT NULL AND round IS NOT NULL
               AND claimed_at IS NOT NULL AND alive_until IS NOT NULL)),
    CONSTRAINT in_doubt_has_a_time_to_look
        CHECK (state <> 'in_doubt' OR (in_doubt_since IS NOT NULL AND due_at IS NOT NULL)),
    CONSTRAINT parked_says_why
        CHECK (state <> 'parked' OR reason IS NOT NULL)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- Claim: fresh calls of a leaf, most urgent first. The only index beside the key that a fresh row enters.
CREATE INDEX dispatch_fresh ON leafhopper.dispatch (leaf, priority, call_id)
    WHERE state = 'pending' AND held IS NULL AND due_at IS NULL;
-- Claim: what becomes due later (not_before, retries, deferred).
CREATE INDEX dispatch_timed ON leafhopper.dispatch (leaf, due_at)
    WHERE state = 'pending' AND held IS NULL AND due_at IS NOT NULL;
-- Claim and resolver: calls in doubt that are due.
CREATE INDEX dispatch_doubt ON leafhopper.dispatch (leaf, due_at)
    WHERE state = 'in_doubt';
-- G4: for one (leaf, key) at most one call under way, in doubt or parked, over all instances.
CREATE UNIQUE INDEX dispatch_one_at_a_time ON leafhopper.dispatch (leaf, key)
    WHERE state IN ('dispatching', 'in_doubt', 'parked');
-- G9: for one (leaf, ordering_key) at most one head.
CREATE UNIQUE INDEX dispatch_one_head ON leafhopper.dispatch (leaf, ordering_key)
    WHERE ordering_key IS NOT NULL AND (held IS NULL OR held = 'key');
-- Promotion of what waits for a key or behind a head.
CREATE INDEX dispatch_held_key ON leafhopper.dispatch (leaf, key) WHERE held = 'key';
CREATE INDEX dispatch_held_order ON leafhopper.dispatch (leaf, ordering_key, call_id) WHERE held = 'order';
CREATE INDEX dispatch_arrived ON leafhopper.dispatch (call_id) WHERE held = 'arrived';
-- Expirer: what ends by itself while it waits.
CREATE INDEX dispatch_ends ON leafhopper.dispatch (least(deadline, give_up_at))
    WHERE state = 'pending' AND (deadline IS NOT NULL OR give_up_at IS NOT NULL);
-- Batch sweep.
CREATE INDEX dispatch_batch ON leafhopper.dispatch (batch_id) WHERE batch_id IS NOT NULL;

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

CREATE INDEX finished_batch ON leafhopper.finished (batch_id) WHERE batch_id IS NOT NULL;
-- The claim's guard, and the batcher: which batches are cancelled without their row saying so?
CREATE INDEX finished_fails_batch ON leafhopper.finished (batch_id) WHERE fails_batch;
-- Lists of what failed, newest first.
CREATE INDEX finished_state ON leafhopper.finished (state, finished_at) WHERE state <> 'confirmed';

-- ---------------------------------------------------------------------------------------------------
-- The durable record: what the leaf confirmed. Written once, never overwritten.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE leafhopper.result (
    leaf         text        NOT NULL,
    key          text        NOT NULL,
    generation   integer     NOT NULL,
    seq          bigint      GENERATED ALWAYS AS IDENTITY,
    call_id      bigint,
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
    finished_at    timestamptz,

    CONSTRAINT undo_order_is_newest_first_or_any
        CHECK (undo_order IN ('newest_first', 'any')),
    CONSTRAINT batch_state_is_known
        CHECK (state IN ('open', 'closing', 'succeeded', 'cancelling', 'compensating', 'cancelled', 'finished'))
);

CREATE INDEX batch_live ON leafhopper.batch (state) WHERE state IN ('open', 'closing', 'cancelling', 'compensating');

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
    -- By leaf: {"credentials": [...], "blocked": [...], "breaker_open": bool, "rate_limited": bool}.
    -- An empty string among credentials and blocked stands for the leaf's own auth.
    leaves       jsonb       NOT NULL DEFAULT '{}',
    -- The membership that this instance's shares of the limits rest on.
    membership   text        NOT NULL DEFAULT ''
);

CREATE TABLE leafhopper.leaf_control (
    leaf                   text        PRIMARY KEY,
    paused                 boolean     NOT NULL DEFAULT false,
    hold_after_failed_head boolean     NOT NULL DEFAULT false,
    -- A person said "resume": breakers that opened before are closed.
    resumed_at             timestamptz,
    updated_at             timestamptz NOT NULL DEFAULT now()
);

-- An ordering key whose head failed at a leaf that holds those behind it.
CREATE TABLE leafhopper.order_hold (
    leaf         text        NOT NULL,
    ordering_key text        NOT NULL,
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
    leaf     text,
    reason   text        NOT NULL,
    detail   jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX operator_action_call ON leafhopper.operator_action (call_id) WHERE call_id IS NOT NULL;

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

-- ---------------------------------------------------------------------------------------------------
-- The insert trigger. It must not fail, wait, or look anything up that another transaction holds.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION leafhopper.wake() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    sleeping boolean;
BEGIN
    -- A transaction that has notified can't be PREPAREd: the app can switch it off.
    IF coalesce(current_setting('leafhopper.notify', true), 'on') IN ('off', 'false', 'no', '0') THEN
        RETURN;
    END IF;
    SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 INTO sleeping
      FROM leafhopper.sleeping_until;
    IF sleeping AND pg_notification_queue_usage() < 0.5 THEN
        -- A hint without content: all notifications of a transaction fold into one.
        PERFORM pg_notify('leafhopper_wake', '');
    END IF;
END $$;

CREATE FUNCTION leafhopper.outbox_inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO leafhopper.dispatch (call_id, leaf, key, ordering_key, batch_id, run_when, priority,
                                     credential, timeout, deadline, held, due_at, enqueued_at)
    SELECT id, leaf,
           CASE WHEN undoes IS NULL THEN key ELSE regexp_replace(key, ':undo:[0-9]+$', '') END,
           ordering_key, batch_id, run_when, priority, credential, timeout,
           nullif(deadline, 'infinity'),
           CASE WHEN run_when <> 'ready' THEN 'batch' WHEN ordering_key IS NOT NULL THEN 'arrived' END,
           CASE WHEN not_before > clock_timestamp() THEN not_before END,
           clock_timestamp()
      FROM inserted;
    PERFORM leafhopper.wake();
    RETURN NULL;
END $$;

-- ORIGIN (the default): the apply worker of a logical subscriber does not fire it, so a copy sends nothing.
CREATE TRIGGER outbox_inserted AFTER INSERT ON leafhopper.outbox
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION leafhopper.outbox_inserted();

-- ---------------------------------------------------------------------------------------------------
-- Small rules that functions and queries share.
-- ---------------------------------------------------------------------------------------------------

-- May calls of this batch be claimed? Reads two rows by their keys, locks nothing.
CREATE FUNCTION leafhopper.batch_is_open(batch uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = batch AND b.state <> 'open')
       AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = batch AND f.fails_batch)
$$;

-- Does a failure of one of its calls cancel this batch?
CREATE FUNCTION leafhopper.failure_cancels(batch uuid, run_when text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT batch IS NOT NULL AND run_when = 'ready'
       AND NOT coalesce((SELECT b.allow_failures OR b.state <> 'open'
                           FROM leafhopper.batch b WHERE b.id = batch), false)
$$;

-- The standing result of a key. VOLATILE, so that it looks with a snapshot of its own: a statement that has
-- locked a call's row sees what was confirmed until then (PostgreSQL, chapter 38.7).
CREATE FUNCTION leafhopper.standing(leaf text, key text) RETURNS TABLE (generation integer, call_id bigint)
LANGUAGE sql VOLATILE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.generation, r.call_id FROM leafhopper.result r
     WHERE r.leaf = standing.leaf AND r.key = standing.key AND r.undone_at IS NULL
     ORDER BY r.generation DESC LIMIT 1
$$;

-- ---------------------------------------------------------------------------------------------------
-- Where each call stands.
-- ---------------------------------------------------------------------------------------------------
CREATE VIEW leafhopper.call AS
WITH alive AS MATERIALIZED (
    SELECT i.id, i.name, i.leaves FROM leafhopper.instance i WHERE i.heartbeat_at + i.lease > now()
), stuck_after AS MATERIALIZED (
    SELECT value::interval AS value FROM leafhopper.setting WHERE name = 'stuck_after'
)
SELECT o.id, o.leaf, o.key, o.method, o.path, o.headers, o.body, o.body_raw, o.content_type, o.batch_id,
       o.run_when, o.ordering_key, o.priority, o.not_before, o.deadline, o.max_attempts, o.timeout,
       o.credential, o.probe, o.compensate, o.meta, o.created_at, o.undoes,
       stands.state,
       CASE
           WHEN stands.state <> 'pending' THEN coalesce(d.reason, f.reason)
           WHEN d.call_id IS NULL THEN 'untracked'
           WHEN EXISTS (SELECT FROM leafhopper.origin WHERE changed_at IS NOT NULL) THEN 'database_changed'
           WHEN d.held = 'batch' THEN 'waits_for_batch'
           -- batch_is_open() would need a right of the reader's own; tables are read with the view's.
           WHEN EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open')
             OR EXISTS (SELECT FROM leafhopper.finished x WHERE x.batch_id = d.batch_id AND x.fails_batch)
               THEN 'batch_cancelled'
           WHEN NOT EXISTS (SELECT FROM alive a WHERE a.leaves ? d.leaf) THEN 'leaf_unknown'
           WHEN EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = d.leaf AND c.paused) THEN 'leaf_paused'
           WHEN d.held = 'key' THEN 'waits_for_key'
           WHEN waits.head IS NOT NULL THEN 'waits_for_order'
           WHEN d.credential IS NOT NULL AND NOT EXISTS (
                SELECT FROM alive a WHERE a.leaves -> d.leaf -> 'credentials' ? d.credential) THEN 'credential_unknown'
           WHEN EXISTS (SELECT FROM alive a WHERE (a.leaves -> d.leaf ->> 'breaker_open')::boolean
                           OR a.leaves -> d.leaf -> 'blocked' ? coalesce(d.credential, '')) THEN 'breaker_open'
           WHEN d.tries > 0 AND d.due_at > now() THEN 'retry'
           WHEN EXISTS (SELECT FROM alive a WHERE (a.leaves -> d.leaf ->> 'rate_limited')::boolean) THEN 'rate_limited'
       END AS reason,
       -- The call that it waits for, where the reason is waits_for_order or waits_for_key.
       CASE WHEN stands.state = 'pending' THEN coalesce(waits.head, waits.holder) END AS waits_for,
       coalesce(d.attempts, f.attempts, r.attempts, 0) AS attempts,
       CASE WHEN d.state = 'in_doubt' OR (d.state = 'pending' AND d.held IS NULL) THEN d.due_at END AS next_attempt_at,
       d.in_doubt_since,
       coalesce(d.last_status, f.last_status, r.status) AS last_status,
       coalesce(d.last_error, f.last_error) AS last_error,
       CASE WHEN d.state = 'dispatching' THEN
           coalesce((SELECT i.name FROM leafhopper.instance i WHERE i.id = d.instance), d.instance::text)
       END AS claimed_by,
       coalesce(f.finished_at, r.confirmed_at) AS finished_at,
       r.undone_at,
       coalesce(CASE stands.state
           WHEN 'parked' THEN true
           WHEN 'dispatching' THEN NOT EXISTS (SELECT FROM alive a WHERE a.id = d.instance)
           WHEN 'in_doubt' THEN d.in_doubt_since < now() - (SELECT value FROM stuck_after)
           WHEN 'pending' THEN
               CASE WHEN d.call_id IS NULL THEN o.created_at < now() - (SELECT value FROM stuck_after)
                    WHEN d.held IN ('batch', 'order', 'key') THEN false
                    WHEN NOT EXISTS (SELECT FROM alive a WHERE a.leaves ? d.leaf) THEN true
                    ELSE greatest(d.due_at, d.enqueued_at) < now() - (SELECT value FROM stuck_after)
                      OR (d.tries > 0 AND d.first_claimed_at < now() - (SELECT value FROM stuck_after))
               END
       END, false) AS stuck
  FROM leafhopper.outbox o
  LEFT JOIN leafhopper.dispatch d ON d.call_id = o.id
  LEFT JOIN leafhopper.finished f ON f.call_id = o.id
  LEFT JOIN leafhopper.result r
         ON r.leaf = o.leaf AND r.key = o.key AND (r.call_id = o.id OR r.generation = f.generation)
  CROSS JOIN LATERAL (
      SELECT CASE WHEN d.call_id IS NOT NULL THEN d.state
                  WHEN f.call_id IS NOT NULL THEN f.state
                  WHEN r.call_id = o.id THEN 'confirmed'
                  ELSE 'pending' END AS state) stands
  LEFT JOIN LATERAL (
      SELECT (SELECT h.head FROM leafhopper.order_hold h
               WHERE d.held IN ('order', 'arrived') AND h.leaf = d.leaf AND h.ordering_key = d.ordering_key) AS hold,
             (SELECT x.call_id FROM leafhopper.dispatch x
               WHERE d.held IN ('order', 'arrived') AND x.leaf = d.leaf AND x.ordering_key = d.ordering_key
                 AND (x.held IS NULL OR x.held = 'key')) AS live,
             (SELECT x.call_id FROM leafhopper.dispatch x
               WHERE d.held = 'key' AND x.leaf = d.leaf AND x.key = d.key
                 AND x.state IN ('dispatching', 'in_doubt', 'parked')) AS holder) w ON true
  CROSS JOIN LATERAL (SELECT coalesce(w.live, w.hold) AS head, w.holder) waits;

-- ---------------------------------------------------------------------------------------------------
-- Functions for the app's or an operator's own transactions. They raise when they refuse.
-- They may wait for the sidecar's short transactions; the sidecar never waits for theirs.
-- ---------------------------------------------------------------------------------------------------

-- Ends a live call without a result. Its dispatch row is locked by the caller.
CREATE FUNCTION leafhopper.end_call(call bigint, new_state text, why text, by_hand boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d leafhopper.dispatch;
BEGIN
    DELETE FROM leafhopper.dispatch WHERE call_id = call RETURNING * INTO d;
    INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error, fails_batch)
    VALUES (d.call_id, d.batch_id, new_state, why, d.attempts, d.last_status, d.last_error,
            by_hand AND leafhopper.failure_cancels(d.batch_id, d.run_when));
    IF d.ordering_key IS NOT NULL AND (d.held IS NULL OR d.held = 'key') AND EXISTS (
        SELECT FROM leafhopper.leaf_control c WHERE c.leaf = d.leaf AND c.hold_after_failed_head)
    THEN
        INSERT INTO leafhopper.order_hold (leaf, ordering_key, head) VALUES (d.leaf, d.ordering_key, d.call_id)
        ON CONFLICT DO NOTHING;
    END IF;
    UPDATE leafhopper.dispatch SET held = NULL
     WHERE leaf = d.leaf AND key = d.key AND held = 'key';
END $$;

-- Who acts: what a command says of itself, else the role that is logged in.
CREATE FUNCTION leafhopper.note(action text, call_id bigint, batch_id uuid, leaf text, reason text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO leafhopper.operator_action (actor, action, call_id, batch_id, leaf, reason)
    VALUES (coalesce(nullif(current_setting('leafhopper.actor', true), ''), session_user),
            action, call_id, batch_id, leaf, reason)
$$;

-- Somebody's word as the confirmation; false where one stood already.
CREATE FUNCTION leafhopper.take_word(leaf text, key text, status integer, body jsonb, source text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    owner_call bigint;
    gen        integer;
    live       record;
    ended      leafhopper.finished;
BEGIN
    -- Calls of the key that are not under way are answered here and now; FOR UPDATE may wait for a claim,
    -- and what it claimed meanwhile is answered when its attempt is recorded.
    PERFORM FROM leafhopper.dispatch d
      WHERE d.leaf = take_word.leaf AND d.call_id IN (
            SELECT o.id FROM leafhopper.outbox o WHERE o.leaf = take_word.leaf AND o.key = take_word.key)
      ORDER BY d.call_id FOR UPDATE;

    SELECT o.id INTO owner_call
      FROM leafhopper.outbox o
     WHERE o.leaf = take_word.leaf AND o.key = take_word.key
       AND NOT EXISTS (SELECT FROM leafhopper.result r
                        WHERE r.leaf = o.leaf AND r.key = o.key AND r.call_id = o.id)
       AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.call_id = o.id AND f.state = 'confirmed')
     ORDER BY o.id DESC LIMIT 1;

    SELECT coalesce(max(r.generation), 0) + 1 INTO gen
      FROM leafhopper.result r
     WHERE r.leaf = take_word.leaf AND r.key = take_word.key AND r.undone_at IS NOT NULL;

    INSERT INTO leafhopper.result (leaf, key, generation, call_id, attempts, status, body, source)
    SELECT take_word.leaf, take_word.key, gen, owner_call,
           coalesce((SELECT d.attempts FROM leafhopper.dispatch d WHERE d.call_id = owner_call),
                    (SELECT f.attempts FROM leafhopper.finished f WHERE f.call_id = owner_call), 0),
           take_word.status, take_word.body, take_word.source
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The owner's end, if it had one without a confirmation, gives way to its result. What it did to its batch
    -- stays: where that end is the only word of it, the batch's row takes it over.
    DELETE FROM leafhopper.finished f WHERE f.call_id = owner_call RETURNING * INTO ended;
    IF ended.fails_batch THEN
        INSERT INTO leafhopper.batch (id, state) VALUES (ended.batch_id, 'cancelling')
        ON CONFLICT (id) DO UPDATE SET state = 'cancelling' WHERE leafhopper.batch.state IN ('open', 'closing');
    END IF;

    FOR live IN
        SELECT d.* FROM leafhopper.dispatch d
         WHERE d.leaf = take_word.leaf AND d.state <> 'dispatching' AND d.call_id IN (
               SELECT o.id FROM leafhopper.outbox o WHERE o.leaf = take_word.leaf AND o.key = take_word.key)
         ORDER BY d.call_id
    LOOP
        DELETE FROM leafhopper.dispatch d WHERE d.call_id = live.call_id;
        IF live.call_id IS DISTINCT FROM owner_call THEN
            INSERT INTO leafhopper.finished (call_id, batch_id, state, attempts, generation)
            VALUES (live.call_id, live.batch_id, 'confirmed', live.attempts, gen);
        END IF;
    END LOOP;
    PERFORM leafhopper.wake();
    RETURN true;
END $$;

CREATE FUNCTION leafhopper.confirm(leaf text, key text, status integer DEFAULT 200, body jsonb DEFAULT NULL)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT leafhopper.take_word(leaf, key, status, body, 'application')
$$;

CREATE FUNCTION leafhopper.forget(leaf text, key text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    blocker record;
BEGIN
    SELECT d.call_id, d.state INTO blocker FROM leafhopper.dispatch d
     WHERE d.leaf = forget.leaf AND d.key = forget.key AND d.state IN ('dispatching', 'in_doubt', 'parked') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'call % of leaf "%", key "%" is %; its effect can''t be forgotten now', blocker.call_id, leaf, key, blocker.state
            USING HINT = 'wait until it is final, or resolve it first', ERRCODE = 'object_in_use';
    END IF;
    UPDATE leafhopper.result r SET undone_at = clock_timestamp()
     WHERE r.leaf = forget.leaf AND r.key = forget.key AND r.undone_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no effect stands for leaf "%", key "%"', leaf, key
            USING HINT = 'look into leafhopper.result for the keys that have one', ERRCODE = 'no_data_found';
    END IF;
    RETURN 'forgotten';
END $$;

CREATE FUNCTION leafhopper.cancel(call_id bigint, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    d     leafhopper.dispatch;
    final text;
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION 'cancel() of call % needs a reason', call_id USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO d FROM leafhopper.dispatch x WHERE x.call_id = cancel.call_id FOR UPDATE;
    IF NOT FOUND THEN
        SELECT c.state INTO final FROM leafhopper.call c WHERE c.id = cancel.call_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no call %', call_id USING ERRCODE = 'no_data_found';
        ELSIF final = 'pending' THEN
            RAISE EXCEPTION 'call % is untracked: it was inserted while triggers were off', call_id
                USING HINT = 'try again when a sidecar has taken it up', ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        RAISE EXCEPTION 'call % is already %', call_id, final
            USING HINT = 'only a call that is not final can be cancelled', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    CASE d.state
        WHEN 'pending' THEN
            PERFORM leafhopper.note('cancel', d.call_id, d.batch_id, d.leaf, reason);
            PERFORM leafhopper.end_call(d.call_id, 'cancelled', reason, true);
            PERFORM leafhopper.wake();
            RETURN 'cancelled';
        WHEN 'parked' THEN
            RAISE EXCEPTION 'call % is parked (%): nobody knows whether it was executed', call_id, d.reason
                USING HINT = 'say what is true: confirm(leaf, key, status, body) or resolve_not_executed(call_id, reason, send => false)',
                      ERRCODE = 'object_not_in_prerequisite_state';
        ELSE
            PERFORM leafhopper.note('cancel', d.call_id, d.batch_id, d.leaf, reason);
            UPDATE leafhopper.dispatch x
               SET cancel_requested = cancel.reason, resend = false,
                   due_at = CASE WHEN x.state = 'in_doubt' THEN clock_timestamp() ELSE x.due_at END
             WHERE x.call_id = d.call_id;
            RETURN d.state;
    END CASE;
END $$;

CREATE FUNCTION leafhopper.resolve_not_executed(call_id bigint, reason text, send boolean DEFAULT true) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    d     leafhopper.dispatch;
    other text;
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION 'resolve_not_executed() of call % needs a reason', call_id USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO d FROM leafhopper.dispatch x WHERE x.call_id = resolve_not_executed.call_id FOR UPDATE;
    IF NOT FOUND OR d.state <> 'parked' THEN
        SELECT c.state INTO other FROM leafhopper.call c WHERE c.id = resolve_not_executed.call_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no call %', call_id USING ERRCODE = 'no_data_found';
        END IF;
        RAISE EXCEPTION 'call % is not parked but %', call_id, other
            USING HINT = 'only a parked call waits for this word', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM leafhopper.note('resolve_not_executed', d.call_id, d.batch_id, d.leaf, reason);
    IF d.deadline <= clock_timestamp() THEN
        PERFORM leafhopper.end_call(d.call_id, 'expired', reason, true);
        PERFORM leafhopper.wake();
        RETURN 'expired';
    ELSIF NOT send OR d.cancel_requested IS NOT NULL
          OR (d.batch_id IS NOT NULL AND NOT leafhopper.batch_is_open(d.batch_id)) THEN
        PERFORM leafhopper.end_call(d.call_id, 'cancelled', reason, true);
        PERFORM leafhopper.wake();
        RETURN 'cancelled';
    END IF;
    UPDATE leafhopper.dispatch x
       SET state = 'pending', due_at = clock_timestamp(), reason = NULL, in_doubt_since = NULL, resend = false,
           crashes = 0, probes = 0, give_up_at = NULL, first_claimed_at = NULL
     WHERE x.call_id = d.call_id;
    PERFORM leafhopper.wake();
    RETURN 'pending';
END $$;

CREATE FUNCTION leafhopper.retry(call_id bigint, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f     leafhopper.finished;
    o     leafhopper.outbox;
    other text;
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION 'retry() of call % needs a reason', call_id USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO f FROM leafhopper.finished x WHERE x.call_id = retry.call_id FOR UPDATE;
    IF NOT FOUND OR f.state <> 'failed' THEN
        SELECT c.state INTO other FROM leafhopper.call c WHERE c.id = retry.call_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no call %', call_id USING ERRCODE = 'no_data_found';
        END IF;
        RAISE EXCEPTION 'call % has not failed but is %', call_id, other
            USING HINT = 'only a failed call can be retried', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF f.batch_id IS NOT NULL AND NOT leafhopper.batch_is_open(f.batch_id) THEN
        RAISE EXCEPTION 'batch % of call % is no longer open', f.batch_id, call_id
            USING HINT = 'insert the work anew in another batch', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT * INTO o FROM leafhopper.outbox x WHERE x.id = retry.call_id;
    PERFORM leafhopper.note('retry', o.id, o.batch_id, o.leaf, reason);
    DELETE FROM leafhopper.finished x WHERE x.call_id = retry.call_id;
    DELETE FROM leafhopper.order_hold h WHERE h.head = retry.call_id;
    INSERT INTO leafhopper.dispatch (call_id, leaf, key, ordering_key, batch_id, run_when, priority, credential,
                                     timeout, deadline, held, due_at, enqueued_at, tries, last_status, last_error)
    VALUES (o.id, o.leaf, CASE WHEN o.undoes IS NULL THEN o.key ELSE regexp_replace(o.key, ':undo:[0-9]+$', '') END,
            o.ordering_key, o.batch_id, o.run_when, o.priority, o.credential, o.timeout, nullif(o.deadline, 'infinity'),
            CASE WHEN o.ordering_key IS NOT NULL THEN 'arrived' END, clock_timestamp(), clock_timestamp(),
            coalesce((SELECT max(a.attempt) FROM leafhopper.attempt a WHERE a.call_id = o.id), 0),
            f.last_status, f.last_error);
    PERFORM leafhopper.wake();
    RETURN 'pending';
END $$;

CREATE FUNCTION leafhopper.cancel_batch(batch uuid, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    b leafhopper.batch;
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION 'cancel_batch() of % needs a reason', batch USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.batch_id = batch)
       AND NOT EXISTS (SELECT FROM leafhopper.batch x WHERE x.id = batch) THEN
        RAISE EXCEPTION 'there is no batch %', batch USING ERRCODE = 'no_data_found';
    END IF;
    INSERT INTO leafhopper.batch (id, state) VALUES (batch, 'cancelling')
    ON CONFLICT (id) DO UPDATE SET state = 'cancelling' WHERE leafhopper.batch.state IN ('open', 'closing')
    RETURNING * INTO b;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'batch % is already %', batch, (SELECT x.state FROM leafhopper.batch x WHERE x.id = batch)
            USING HINT = 'only an open batch can be cancelled', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM leafhopper.note('cancel_batch', NULL, batch, NULL, reason);
    PERFORM leafhopper.wake();
    RETURN 'cancelling';
END $$;

CREATE FUNCTION leafhopper.seal(batch uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE leafhopper.batch b SET sealed = true WHERE b.id = batch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'batch % has no row to seal', batch
            USING HINT = 'insert it into leafhopper.batch with sealed = false in the transaction of its first call',
                  ERRCODE = 'no_data_found';
    END IF;
    PERFORM leafhopper.wake();
    RETURN (SELECT b.state FROM leafhopper.batch b WHERE b.id = batch);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leafhopper FROM PUBLIC;
REVOKE ALL ON SCHEMA leafhopper FROM PUBLIC;

COMMENT ON SCHEMA leafhopper IS 'Calls to remote services, written by the app, made and recorded by leafhopper.';
COMMENT ON TABLE leafhopper.outbox IS 'One row for each call: the intent. The app inserts, nobody updates.';
COMMENT ON TABLE leafhopper.dispatch IS 'Where each call that is not final stands. Written by the sidecar.';
COMMENT ON TABLE leafhopper.finished IS 'Calls that are final without a result of their own.';
COMMENT ON TABLE leafhopper.result IS 'What leaves confirmed: one row for each (leaf, key, generation).';
COMMENT ON TABLE leafhopper.attempt IS 'Attempts that did not confirm, and second confirmations.';
COMMENT ON VIEW leafhopper.call IS 'One row for each call, with where it stands and why.';
