-- The schema as all files of sql/migrations together make it: to read, or to load into an empty database.
-- Written by a test: LEAFHOPPER_UPDATE_SCHEMA=1 cargo test --test it schema_sql
-- Functions stand before the tables that they read.
SET check_function_bodies = off;

CREATE SCHEMA leafhopper;

COMMENT ON SCHEMA leafhopper IS 'Calls to remote services, written by the app, made and recorded by leafhopper.';

CREATE FUNCTION leafhopper.batch_changed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO leafhopper.batch_mark (batch_id) VALUES (NEW.id);
    RETURN NULL;
END $$;

CREATE FUNCTION leafhopper.batch_is_open(batch uuid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = batch AND b.state NOT IN ('open', 'closing'))
       AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = batch AND f.fails_batch)
$$;

CREATE TABLE leafhopper.batch (
    id uuid NOT NULL,
    name text,
    allow_failures boolean DEFAULT false NOT NULL,
    sealed boolean DEFAULT true NOT NULL,
    undo_order text DEFAULT 'newest_first'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    idle_since timestamp with time zone,
    last_phase_at timestamp with time zone,
    finished_at timestamp with time zone,
    CONSTRAINT batch_state_is_known CHECK ((state = ANY (ARRAY['open'::text, 'closing'::text, 'succeeded'::text, 'cancelling'::text, 'compensating'::text, 'cancelled'::text, 'finished'::text]))),
    CONSTRAINT undo_order_is_newest_first_or_any CHECK ((undo_order = ANY (ARRAY['newest_first'::text, 'any'::text])))
);

CREATE FUNCTION leafhopper.batch_reason(b leafhopper.batch) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    SELECT CASE
        WHEN b.state = 'open' AND NOT b.sealed AND b.idle_since IS NOT NULL THEN 'unsealed'
        WHEN b.state <> 'compensating' THEN NULL
        WHEN EXISTS (SELECT FROM leafhopper.dispatch d
                      WHERE d.batch_id = b.id AND d.run_when = 'batch_failed' AND d.undoes IS NOT NULL AND d.state = 'parked')
          -- One that failed, and what it should have undone stands.
          OR EXISTS (SELECT FROM leafhopper.finished f
                       JOIN leafhopper.outbox c ON c.id = f.call_id
                       JOIN leafhopper.result r ON r.leaf = c.leaf AND r.key = regexp_replace(c.key, ':undo:[0-9]+$', '')
                                               AND r.generation::text = substring(c.key FROM ':undo:([0-9]+)$')
                      WHERE f.batch_id = b.id AND f.state = 'failed' AND c.undoes IS NOT NULL AND r.undone_at IS NULL)
            THEN 'teardown_incomplete'
        WHEN EXISTS (SELECT FROM leafhopper.dispatch d
                      WHERE d.batch_id = b.id AND d.run_when = 'batch_failed' AND d.undoes IS NOT NULL AND d.state = 'pending'
                        AND d.leaf <> ALL (known.leaves))
          -- What the leaf's configuration says of it is not to be had.
          OR EXISTS (SELECT FROM leafhopper.effect e
                      WHERE e.batch_id = b.id AND e.undone_by = 'leaf' AND e.leaf <> ALL (known.leaves))
            THEN 'leaf_unknown'
    END
      FROM (SELECT ARRAY(SELECT DISTINCT jsonb_object_keys(i.leaves) FROM leafhopper.instance i
                          WHERE i.heartbeat_at + i.lease > now()) AS leaves) known
$_$;

CREATE FUNCTION leafhopper.batch_waits_since(b leafhopper.batch) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN (((b).state = 'open'::text) AND (NOT (b).sealed)) THEN (b).idle_since WHEN ((b).state = ANY (ARRAY['cancelling'::text, 'compensating'::text])) THEN (b).changed_at ELSE NULL::timestamp with time zone END;

CREATE FUNCTION leafhopper.call_ended() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO leafhopper.batch_mark (batch_id) VALUES (OLD.batch_id);
    RETURN NULL;
END $$;

CREATE FUNCTION leafhopper.can_be_asked_first(call bigint) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT EXISTS (
        SELECT FROM leafhopper.dispatch d
         WHERE d.call_id = call AND (d.held IS NULL OR d.held = 'key')
           AND NOT EXISTS (
               SELECT FROM leafhopper.dispatch x
                WHERE x.leaf = d.leaf AND x.key = d.key AND x.call_id <> d.call_id
                  AND (x.state IN ('dispatching', 'in_doubt', 'parked')
                       OR x.state = 'pending' AND x.suspect AND (x.held IS NULL OR x.held = 'key')
                          AND x.call_id < d.call_id)))
$$;

CREATE FUNCTION leafhopper.cancel(call_id bigint, reason text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    d     leafhopper.dispatch;
    final text;
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION 'cancel() of call % needs a reason', call_id USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- A batch that is closing is about to succeed, or to be open again: either is known when this has its row.
    PERFORM FROM leafhopper.batch b JOIN leafhopper.outbox o ON o.batch_id = b.id
      WHERE o.id = cancel.call_id AND b.state = 'closing' FOR UPDATE OF b;
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
    IF d.undoes IS NOT NULL THEN
        RAISE EXCEPTION 'call % is a compensation: it undoes the effect of call %', call_id, d.undoes
            USING HINT = 'once it is parked or failed, waive(call_id, reason) lets the effect stand',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    CASE d.state
        WHEN 'pending' THEN
            PERFORM leafhopper.note('cancel', d.call_id, d.batch_id, d.leaf, reason);
            -- It may have been executed before the database changed: the leaf is asked first.
            IF d.suspect AND d.held IS DISTINCT FROM 'batch' THEN
                IF NOT leafhopper.can_be_asked_first(d.call_id) THEN
                    RAISE EXCEPTION 'call % may have been executed before the database changed, and it is not its turn to be asked about', call_id
                        USING HINT = 'cancel it when those before it are final', ERRCODE = 'object_in_use';
                END IF;
                UPDATE leafhopper.dispatch x
                   SET state = 'in_doubt', held = NULL, suspect = false, cancel_requested = cancel.reason,
                       in_doubt_since = clock_timestamp(), alive_until = clock_timestamp(), due_at = clock_timestamp(),
                       first_claimed_at = coalesce(x.first_claimed_at, clock_timestamp())
                 WHERE x.call_id = d.call_id;
                PERFORM leafhopper.wake();
                RETURN 'in_doubt';
            END IF;
            PERFORM leafhopper.end_call(d.call_id, 'cancelled', reason);
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

CREATE FUNCTION leafhopper.cancel_batch(batch uuid, reason text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
    ON CONFLICT (id) DO UPDATE SET state = 'cancelling', changed_at = clock_timestamp(), idle_since = NULL
     WHERE leafhopper.batch.state IN ('open', 'closing')
    RETURNING * INTO b;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'batch % is already %', batch, (SELECT x.state FROM leafhopper.batch x WHERE x.id = batch)
            USING HINT = 'only an open batch can be cancelled; what an ended one left is undone by calls of your own, or forgotten with forget(leaf, key)',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM leafhopper.note('cancel_batch', NULL, batch, NULL, reason);
    PERFORM leafhopper.wake();
    RETURN 'cancelling';
END $$;

CREATE FUNCTION leafhopper.compensation_confirmed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
BEGIN
    UPDATE leafhopper.result SET undone_at = clock_timestamp()
     WHERE leaf = NEW.leaf AND key = regexp_replace(NEW.key, ':undo:[0-9]+$', '')
       AND generation::text = substring(NEW.key FROM ':undo:([0-9]+)$') AND undone_at IS NULL;
    RETURN NULL;
END $_$;

CREATE FUNCTION leafhopper.confirm(leaf text, key text, status integer DEFAULT 200, body jsonb DEFAULT NULL::jsonb) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
#variable_conflict use_column
BEGIN
    -- Said before there is one, it would be taken for the undoing of an effect that still stands then.
    IF key ~ ':undo:[0-9]+$' AND NOT EXISTS (
        SELECT FROM leafhopper.outbox o WHERE o.leaf = confirm.leaf AND o.key = confirm.key)
    THEN
        RAISE EXCEPTION 'leaf "%" has no compensation "%"', leaf, key
            USING HINT = 'forget(leaf, key) says that an effect is gone', ERRCODE = 'no_data_found';
    END IF;
    RETURN leafhopper.take_word(leaf, key, status, body, 'application');
END $_$;

CREATE FUNCTION leafhopper.end_call(call bigint, new_state text, why text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    d leafhopper.dispatch;
BEGIN
    DELETE FROM leafhopper.dispatch WHERE call_id = call RETURNING * INTO d;
    INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error, fails_batch)
    VALUES (d.call_id, d.batch_id, new_state, why, d.attempts, d.last_status, d.last_error,
            leafhopper.failure_cancels(d.batch_id, d.run_when));
    IF d.ordering_key IS NOT NULL AND (d.held IS NULL OR d.held = 'key') AND EXISTS (
        SELECT FROM leafhopper.leaf_control c WHERE c.leaf = d.leaf AND c.hold_after_failed_head)
    THEN
        INSERT INTO leafhopper.order_hold (leaf, ordering_key, head) VALUES (d.leaf, d.ordering_key, d.call_id)
        ON CONFLICT DO NOTHING;
    END IF;
    -- Not waited for: functions lock calls by id, and these may be older. The sidecar's sweep frees the rest.
    UPDATE leafhopper.dispatch SET held = NULL
     WHERE call_id IN (SELECT w.call_id FROM leafhopper.dispatch w
                        WHERE w.leaf = d.leaf AND w.key = d.key AND w.held = 'key'
                        ORDER BY w.call_id LIMIT 1
                          FOR UPDATE SKIP LOCKED);
END $$;

CREATE FUNCTION leafhopper.failure_cancels(batch uuid, run_when text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT batch IS NOT NULL AND run_when = 'ready'
       AND NOT coalesce((SELECT b.allow_failures OR b.state NOT IN ('open', 'closing')
                           FROM leafhopper.batch b WHERE b.id = batch), false)
$$;

CREATE FUNCTION leafhopper.forget(leaf text, key text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
#variable_conflict use_column
DECLARE
    blocker record;
    moot    record;
BEGIN
    IF key ~ ':undo:[0-9]+$' THEN
        RAISE EXCEPTION 'key "%" is a compensation''s; what it did is no effect that could be forgotten', key
            USING HINT = 'name the key without ":undo:" and its number', ERRCODE = 'invalid_parameter_value';
    END IF;
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
    -- What was about to undo it has nothing left to do. One that was claimed since the look above is under way.
    FOR moot IN
        SELECT d.call_id, d.state, o.key FROM leafhopper.dispatch d JOIN leafhopper.outbox o ON o.id = d.call_id
         WHERE d.leaf = forget.leaf AND d.key = forget.key AND d.undoes IS NOT NULL
         ORDER BY d.call_id FOR UPDATE OF d
    LOOP
        IF moot.state <> 'pending' THEN
            RAISE EXCEPTION 'call % of leaf "%", key "%" is %; its effect can''t be forgotten now', moot.call_id, leaf, key, moot.state
                USING HINT = 'wait until it is final, or resolve it first', ERRCODE = 'object_in_use';
        END IF;
        PERFORM leafhopper.take_word(leaf, moot.key, 200, NULL, 'application');
    END LOOP;
    RETURN 'forgotten';
END $_$;

CREATE TABLE leafhopper.dispatch (
    call_id bigint NOT NULL,
    leaf text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    ordering_key text COLLATE pg_catalog."C",
    batch_id uuid,
    run_when text NOT NULL,
    undoes bigint,
    priority smallint NOT NULL,
    credential text,
    timeout interval,
    deadline timestamp with time zone,
    state text DEFAULT 'pending'::text NOT NULL,
    held text,
    due_at timestamp with time zone,
    deferred_since timestamp with time zone,
    enqueued_at timestamp with time zone NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    probes integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    instance uuid,
    round bigint,
    claimed_at timestamp with time zone,
    alive_until timestamp with time zone,
    first_claimed_at timestamp with time zone,
    give_up_at timestamp with time zone,
    in_doubt_since timestamp with time zone,
    resend boolean DEFAULT false NOT NULL,
    resend_asks boolean DEFAULT false NOT NULL,
    exists_said boolean DEFAULT false NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    cancel_requested text,
    reason text,
    last_status integer,
    last_error text
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.1', autovacuum_analyze_threshold='1000');

COMMENT ON TABLE leafhopper.dispatch IS 'Where each call that is not final stands. Written by the sidecar.';

CREATE FUNCTION leafhopper.is_consistent(d leafhopper.dispatch) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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

CREATE FUNCTION leafhopper.is_told(call bigint, attempt integer, class text, status integer, error text) RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT EXISTS (SELECT FROM leafhopper.attempt a
                    WHERE a.call_id = call AND a.attempt = is_told.attempt AND a.class = is_told.class
                      AND a.status IS NOT DISTINCT FROM is_told.status AND a.error IS NOT DISTINCT FROM is_told.error)
$$;

CREATE TABLE leafhopper.outbox (
    id bigint NOT NULL,
    leaf text NOT NULL COLLATE pg_catalog."C",
    key text DEFAULT (gen_random_uuid())::text NOT NULL COLLATE pg_catalog."C",
    method text DEFAULT 'POST'::text NOT NULL,
    path text NOT NULL,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    body jsonb,
    body_raw bytea,
    content_type text,
    batch_id uuid,
    run_when text DEFAULT 'ready'::text NOT NULL,
    ordering_key text COLLATE pg_catalog."C",
    priority smallint DEFAULT 0 NOT NULL,
    not_before timestamp with time zone,
    deadline timestamp with time zone,
    max_attempts integer,
    timeout interval,
    credential text,
    probe jsonb,
    compensate jsonb,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    undoes bigint
);

COMMENT ON TABLE leafhopper.outbox IS 'One row for each call: the intent. The app inserts, nobody updates.';

CREATE FUNCTION leafhopper.is_well_formed(o leafhopper.outbox) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    broken text;
BEGIN
    -- The usual row, for which most rules have nothing to say. All that is told here is told below in full.
    IF num_nonnulls(o.body_raw, o.content_type, o.ordering_key, o.max_attempts, o.timeout, o.credential, o.probe,
                    o.compensate, o.undoes) = 0
       AND o.run_when = 'ready' AND o.headers = '{}' AND jsonb_typeof(o.meta) = 'object'
       AND o.method IN ('POST', 'PUT', 'PATCH', 'DELETE', 'GET')
       AND (o.path ~ '^(/[-_0-9A-Za-z]+)+$' OR o.path = '/') AND char_length(o.path) <= 8000
       AND char_length(o.key) BETWEEN 1 AND 200 AND strpos(o.key, ':undo:') = 0
       AND char_length(o.leaf) BETWEEN 1 AND 100
    THEN
        RETURN true;
    END IF;

    broken := CASE
        WHEN NOT (o.compensate IS NULL OR coalesce(
                  jsonb_typeof(o.compensate) = 'object'
                  AND o.compensate ->> 'method' IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')
                  AND jsonb_typeof(o.compensate -> 'path') = 'string' AND o.compensate ->> 'path' LIKE '/%'
                  AND NOT jsonb_path_exists(o.compensate,
                      '$.keyvalue() ? (!(@.key like_regex "^(method|path|body)$"))', silent => true), false))
            THEN 'compensate_is_an_object_with_method_and_path'
        WHEN (o.body_raw IS NOT NULL) <> (o.content_type IS NOT NULL)
            THEN 'content_type_goes_with_body_raw_and_only_with_it'
        WHEN jsonb_path_exists(o.headers, '$.keyvalue() ? (@.key like_regex "^content-type$" flag "i")', silent => true)
            THEN 'content_type_is_not_among_the_headers'
        WHEN o.content_type !~ '^[!-~]([ -~]{0,198}[!-~])?$'
            THEN 'content_type_is_visible_ascii'
        WHEN char_length(o.credential) NOT BETWEEN 1 AND 200
            THEN 'credential_is_1_to_200_characters'
        WHEN jsonb_path_exists(o.headers,
                 '$.keyvalue() ? (!(@.key like_regex "^[-!#$%&''*+.^_`|~0-9A-Za-z]+$"))', silent => true)
            THEN 'header_names_are_http_tokens'
        WHEN o.headers <> '{}'
             AND jsonb_array_length(jsonb_path_query_array(o.headers, '$.keyvalue()', silent => true))
              <> jsonb_array_length(jsonb_path_query_array(lower(o.headers::text)::jsonb, '$.keyvalue()', silent => true))
            THEN 'header_names_are_unique_in_any_case'
        WHEN jsonb_path_exists(o.headers,
                 '$.keyvalue() ? (!(@.value like_regex "^([!-~]([ -~]*[!-~])?)?$"))', silent => true)
            THEN 'header_values_are_visible_ascii'
        WHEN jsonb_typeof(o.headers) <> 'object'
             OR jsonb_path_exists(o.headers, '$.keyvalue() ? (@.value.type() != "string")', silent => true)
            THEN 'headers_are_an_object_of_strings'
        WHEN jsonb_path_exists(o.headers,
                 '$.keyvalue() ? (@.key like_regex "^(host|content-length|connection|keep-alive|proxy-connection|proxy-authenticate|proxy-authorization|te|trailer|transfer-encoding|upgrade|expect)$" flag "i")', silent => true)
            THEN 'headers_do_not_frame_or_route'
        WHEN (o.key ~ ':undo:[0-9]+$') <> (o.undoes IS NOT NULL)
            THEN 'key_does_not_end_in_undo_and_digits'
        -- A compensation's key is the key that it undoes, with an end.
        WHEN char_length(o.key) NOT BETWEEN 1 AND 200 AND o.undoes IS NULL
            THEN 'key_is_1_to_200_characters'
        WHEN char_length(o.leaf) NOT BETWEEN 1 AND 100
            THEN 'leaf_is_1_to_100_characters'
        WHEN o.max_attempts < 1
            THEN 'max_attempts_is_at_least_1'
        WHEN jsonb_typeof(o.meta) <> 'object'
            THEN 'meta_is_an_object'
        WHEN o.method NOT IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')
            THEN 'method_is_get_head_post_put_patch_or_delete'
        WHEN o.body IS NOT NULL AND o.body_raw IS NOT NULL
            THEN 'only_one_of_body_and_body_raw'
        WHEN char_length(o.ordering_key) NOT BETWEEN 1 AND 200
            THEN 'ordering_key_is_1_to_200_characters'
        -- What a URL parser would write in another way: the request must be the one that was asked for.
        WHEN split_part(o.path, '?', 1) ~ '["<>{}`]' OR o.path ~ '[?].*["''<>]'
            THEN 'path_has_no_character_that_a_url_must_escape'
        WHEN split_part(o.path, '?', 1) ~* '(^|/|%(25)*(2f|5c))(\.|%(25)*2e){1,2}(;|$|/|%(25)*(2f|5c))'
            THEN 'path_has_no_dot_segment_in_any_encoding'
        WHEN char_length(o.path) > 8000
            THEN 'path_is_at_most_8000_characters'
        WHEN o.path !~ '^[!-~]+$' OR o.path ~ '[\\#]'
            THEN 'path_is_visible_ascii_without_backslash_or_fragment'
        WHEN o.path ~* '%([^0-9a-f]|.[^0-9a-f]|.?$)'
            THEN 'path_percent_signs_are_escapes'
        WHEN o.path !~ '^/([^/]|$)'
            THEN 'path_starts_with_exactly_one_slash'
        WHEN NOT (o.probe IS NULL OR coalesce(
                  jsonb_typeof(o.probe) = 'object'
                  AND jsonb_typeof(o.probe -> 'path') = 'string' AND o.probe ->> 'path' LIKE '/%'
                  AND coalesce(o.probe ->> 'method' IN ('GET', 'HEAD'), true)
                  AND NOT jsonb_path_exists(o.probe,
                      '$.keyvalue() ? (!(@.key like_regex "^(method|path|found|settle|max_probes)$"))', silent => true), false))
            THEN 'probe_is_an_object_with_a_path'
        WHEN o.run_when NOT IN ('ready', 'batch_succeeded', 'batch_failed', 'batch_settled')
            THEN 'run_when_is_ready_or_a_batch_phase'
        WHEN o.run_when <> 'ready' AND o.batch_id IS NULL
            THEN 'run_when_other_than_ready_needs_a_batch'
        WHEN o.timeout <= interval '0' OR o.timeout > interval '1 day'
            THEN 'timeout_is_above_zero_and_at_most_a_day'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation',
            MESSAGE = format('new row for relation "outbox" violates check constraint "%s"', broken),
            SCHEMA = 'leafhopper', TABLE = 'outbox', CONSTRAINT = broken;
    END IF;
    RETURN true;
END $_$;

CREATE FUNCTION leafhopper.may_run_again(call bigint) RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT CASE WHEN o.batch_id IS NULL THEN true
                WHEN o.run_when = 'ready' THEN leafhopper.batch_is_open(o.batch_id)
                WHEN o.undoes IS NOT NULL THEN b.state = 'compensating'
                WHEN o.run_when = 'batch_settled' THEN b.last_phase_at IS NOT NULL
                ELSE b.state = CASE o.run_when WHEN 'batch_succeeded' THEN 'succeeded' ELSE 'cancelled' END
                     AND (b.last_phase_at IS NULL
                          OR NOT EXISTS (SELECT FROM leafhopper.outbox x
                                          WHERE x.batch_id = o.batch_id AND x.run_when = 'batch_settled'))
           END IS TRUE
      FROM leafhopper.outbox o LEFT JOIN leafhopper.batch b ON b.id = o.batch_id
     WHERE o.id = call
$$;

CREATE FUNCTION leafhopper.note(action text, call_id bigint, batch_id uuid, leaf text, reason text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    INSERT INTO leafhopper.operator_action (actor, action, call_id, batch_id, leaf, reason, detail)
    VALUES (coalesce(nullif(current_setting('leafhopper.actor', true), ''), session_user),
            action, call_id, batch_id, leaf, reason,
            jsonb_strip_nulls(jsonb_build_object('job', nullif(current_setting('leafhopper.job', true), '')::bigint)))
$$;

CREATE FUNCTION leafhopper.outbox_inserted() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    sleeping boolean;
    batches  boolean;
BEGIN
    INSERT INTO leafhopper.dispatch (call_id, leaf, key, ordering_key, batch_id, run_when, undoes, priority,
                                     credential, timeout, deadline, held, due_at, enqueued_at)
    SELECT id, leaf,
           CASE WHEN undoes IS NULL THEN key ELSE regexp_replace(key, ':undo:[0-9]+$', '') END,
           ordering_key, batch_id, run_when, undoes, priority, credential, timeout,
           nullif(deadline, 'infinity'),
           CASE WHEN run_when <> 'ready' THEN 'batch' WHEN ordering_key IS NOT NULL THEN 'arrived' END,
           CASE WHEN not_before > clock_timestamp() THEN not_before END,
           clock_timestamp()
      FROM inserted;
    -- One statement tells of the usual row that nothing else is to be done.
    SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000,
           EXISTS (SELECT FROM inserted WHERE batch_id IS NOT NULL)
      INTO sleeping, batches
      FROM leafhopper.sleeping_until;
    IF batches THEN
        INSERT INTO leafhopper.batch_mark (batch_id)
        SELECT DISTINCT batch_id FROM inserted WHERE batch_id IS NOT NULL;
    END IF;
    IF sleeping THEN
        PERFORM leafhopper.wake();
    END IF;
    RETURN NULL;
END $_$;

CREATE FUNCTION leafhopper.resolve_not_executed(call_id bigint, reason text, send boolean DEFAULT true) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
    IF d.undoes IS NOT NULL AND NOT send THEN
        RAISE EXCEPTION 'call % is a compensation: without it, the effect of call % stands', call_id, d.undoes
            USING HINT = 'waive(call_id, reason) lets the effect stand', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM leafhopper.note('resolve_not_executed', d.call_id, d.batch_id, d.leaf, reason);
    IF d.deadline <= clock_timestamp() THEN
        PERFORM leafhopper.end_call(d.call_id, 'expired', reason);
        PERFORM leafhopper.wake();
        RETURN 'expired';
    ELSIF NOT send OR d.cancel_requested IS NOT NULL
          OR (d.batch_id IS NOT NULL AND d.run_when = 'ready' AND NOT leafhopper.batch_is_open(d.batch_id)) THEN
        PERFORM leafhopper.end_call(d.call_id, 'cancelled', reason);
        PERFORM leafhopper.wake();
        RETURN 'cancelled';
    END IF;
    -- A compensation whose request could not be made gets a new one, of what is configured by now.
    IF d.reason = 'template' AND d.undoes IS NOT NULL THEN
        INSERT INTO leafhopper.batch_mark (batch_id) VALUES (d.batch_id);
    END IF;
    UPDATE leafhopper.dispatch x
       SET state = 'pending', held = CASE WHEN d.reason = 'template' AND d.undoes IS NOT NULL THEN 'batch' END,
           due_at = clock_timestamp(), reason = NULL, in_doubt_since = NULL, resend = false,
           crashes = 0, probes = 0, give_up_at = NULL, first_claimed_at = NULL
     WHERE x.call_id = d.call_id;
    PERFORM leafhopper.wake();
    RETURN 'pending';
END $$;

CREATE FUNCTION leafhopper.result_changed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO leafhopper.batch_mark (batch_id) VALUES (NEW.batch_id);
    RETURN NULL;
END $$;

CREATE FUNCTION leafhopper.retry(call_id bigint, reason text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
#variable_conflict use_column
DECLARE
    f     leafhopper.finished;
    o     leafhopper.outbox;
    b     leafhopper.batch;
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
            USING HINT = CASE other WHEN 'parked' THEN 'say what is true of it: resolve_not_executed(call_id, reason) sends it again'
                                    ELSE 'only a failed call can be retried' END,
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT * INTO o FROM leafhopper.outbox x WHERE x.id = retry.call_id;
    IF f.batch_id IS NOT NULL THEN
        -- Whoever closes the batch meanwhile is waited for, and waits for this.
        SELECT * INTO b FROM leafhopper.batch x WHERE x.id = f.batch_id FOR UPDATE;
        IF NOT leafhopper.may_run_again(o.id) THEN
            RAISE EXCEPTION 'batch % of call % is %', f.batch_id, call_id,
                            CASE o.run_when WHEN 'ready' THEN 'no longer open' ELSE b.state || ': the phase of this call is over' END
                USING HINT = 'insert the work anew in another batch', ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        -- A compensation of what somebody has forgotten has nothing to undo, and would hold the others up. Written, not only
        -- locked: a forget() that does not see this one must not pass.
        UPDATE leafhopper.result r SET attempts = r.attempts
         WHERE o.undoes IS NOT NULL AND r.undone_at IS NULL AND r.leaf = o.leaf
           AND o.key = r.key || ':undo:' || r.generation AND r.key = regexp_replace(o.key, ':undo:[0-9]+$', '');
        IF o.undoes IS NOT NULL AND NOT FOUND THEN
            RAISE EXCEPTION 'what call % would undo is gone already', call_id
                USING HINT = 'nothing is left to be done', ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        UPDATE leafhopper.batch x SET finished_at = NULL WHERE x.id = f.batch_id AND x.finished_at IS NOT NULL;
        INSERT INTO leafhopper.batch_mark (batch_id) VALUES (f.batch_id);
    END IF;
    PERFORM leafhopper.note('retry', o.id, o.batch_id, o.leaf, reason);
    DELETE FROM leafhopper.finished x WHERE x.call_id = retry.call_id;
    DELETE FROM leafhopper.order_hold h WHERE h.head = retry.call_id;
    INSERT INTO leafhopper.dispatch (call_id, leaf, key, ordering_key, batch_id, run_when, undoes, priority, credential,
                                     timeout, deadline, held, due_at, enqueued_at, tries, last_status, last_error)
    VALUES (o.id, o.leaf, CASE WHEN o.undoes IS NULL THEN o.key ELSE regexp_replace(o.key, ':undo:[0-9]+$', '') END,
            o.ordering_key, o.batch_id, o.run_when, o.undoes, o.priority, o.credential, o.timeout,
            nullif(o.deadline, 'infinity'),
            -- A compensation's request is made anew, of what is configured by now.
            CASE WHEN o.undoes IS NOT NULL THEN 'batch' WHEN o.ordering_key IS NOT NULL THEN 'arrived' END,
            clock_timestamp(), clock_timestamp(),
            coalesce((SELECT max(a.attempt) FROM leafhopper.attempt a WHERE a.call_id = o.id), 0),
            f.last_status, f.last_error);
    PERFORM leafhopper.wake();
    RETURN 'pending';
END $_$;

CREATE FUNCTION leafhopper.seal(batch uuid) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION leafhopper.standing(leaf text, key text) RETURNS TABLE(generation integer, call_id bigint, source text)
    LANGUAGE sql ROWS 1
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT r.generation, r.call_id, r.source FROM leafhopper.result r
     WHERE r.leaf = standing.leaf AND r.key = standing.key AND r.undone_at IS NULL
     ORDER BY r.generation DESC LIMIT 1
$$;

CREATE FUNCTION leafhopper.take_word(leaf text, key text, status integer, body jsonb, source text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    owner_call bigint;
    gen        integer;
    recorded   boolean;
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

    INSERT INTO leafhopper.result (leaf, key, generation, call_id, batch_id, alive_until, attempts, status, body, source)
    SELECT take_word.leaf, take_word.key, gen, owner_call,
           (SELECT o.batch_id FROM leafhopper.outbox o WHERE o.id = owner_call),
           -- What is under way, in doubt or parked can have a request on its way.
           (SELECT max(d.alive_until) FROM leafhopper.dispatch d
             WHERE d.leaf = take_word.leaf AND d.state IN ('dispatching', 'in_doubt', 'parked')
               AND d.call_id IN (SELECT o.id FROM leafhopper.outbox o
                                  WHERE o.leaf = take_word.leaf AND o.key = take_word.key)),
           coalesce((SELECT d.attempts FROM leafhopper.dispatch d WHERE d.call_id = owner_call),
                    (SELECT f.attempts FROM leafhopper.finished f WHERE f.call_id = owner_call), 0),
           take_word.status, take_word.body, take_word.source
    ON CONFLICT DO NOTHING;
    recorded := FOUND;
    IF NOT recorded THEN
        -- It ends what is in doubt or parked. What is pending is compared with it when it is claimed.
        SELECT s.generation, s.call_id INTO gen, owner_call FROM leafhopper.standing(take_word.leaf, take_word.key) s;
    END IF;
    -- An owner that came in after the lock above can be ending in somebody's open transaction: wait for it, so
    -- that the next statement sees how it ended.
    PERFORM FROM leafhopper.dispatch d WHERE d.call_id = owner_call FOR UPDATE;
    -- The owner's end, if it had one without a confirmation, gives way to its result. What it did to its batch
    -- stays: where that end is the only word of it, the batch's row takes it over.
    DELETE FROM leafhopper.finished f WHERE f.call_id = owner_call RETURNING * INTO ended;
    -- It is confirmed now, and holds nobody behind it any more.
    DELETE FROM leafhopper.order_hold h WHERE h.head = owner_call;
    IF ended.fails_batch THEN
        INSERT INTO leafhopper.batch (id, state) VALUES (ended.batch_id, 'cancelling')
        ON CONFLICT (id) DO UPDATE SET state = 'cancelling', changed_at = clock_timestamp()
          WHERE leafhopper.batch.state IN ('open', 'closing');
    END IF;

    FOR live IN
        SELECT d.* FROM leafhopper.dispatch d
         WHERE d.leaf = take_word.leaf AND (d.state IN ('in_doubt', 'parked') OR recorded AND d.state <> 'dispatching')
           AND d.call_id IN (
               SELECT o.id FROM leafhopper.outbox o WHERE o.leaf = take_word.leaf AND o.key = take_word.key)
         ORDER BY d.call_id
    LOOP
        -- One that came in after the lock above can have been claimed meanwhile: its attempt will hear of this.
        DELETE FROM leafhopper.dispatch d WHERE d.call_id = live.call_id AND d.state <> 'dispatching';
        CONTINUE WHEN NOT FOUND;
        IF live.call_id IS DISTINCT FROM owner_call THEN
            INSERT INTO leafhopper.finished (call_id, batch_id, state, attempts, generation)
            VALUES (live.call_id, live.batch_id, 'confirmed', live.attempts, gen);
        END IF;
    END LOOP;
    PERFORM leafhopper.wake();
    RETURN recorded;
END $$;

CREATE FUNCTION leafhopper.waive(call_id bigint, reason text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    o     leafhopper.outbox;
    other text;
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION 'waive() of call % needs a reason', call_id USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO o FROM leafhopper.outbox x WHERE x.id = waive.call_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no call %', call_id USING ERRCODE = 'no_data_found';
    ELSIF o.undoes IS NULL THEN
        RAISE EXCEPTION 'call % is no compensation', call_id
            USING HINT = 'waive the compensation that failed or is parked; the batch shows it', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM FROM leafhopper.dispatch d WHERE d.call_id = waive.call_id AND d.state = 'parked' FOR UPDATE;
    IF FOUND THEN
        PERFORM leafhopper.end_call(o.id, 'cancelled', 'waived');
    ELSE
        UPDATE leafhopper.finished f SET state = 'cancelled', reason = 'waived'
         WHERE f.call_id = waive.call_id AND f.state <> 'confirmed' AND f.reason IS DISTINCT FROM 'waived';
        IF NOT FOUND THEN
            SELECT CASE WHEN c.reason = 'waived' THEN c.reason ELSE c.state END INTO other
              FROM leafhopper.call c WHERE c.id = waive.call_id;
            RAISE EXCEPTION 'call % is neither failed nor parked but %', call_id, other
                USING HINT = 'only a compensation that has come to nothing can be waived',
                      ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        INSERT INTO leafhopper.batch_mark (batch_id) VALUES (o.batch_id);
    END IF;
    PERFORM leafhopper.note('waive', o.id, o.batch_id, o.leaf, reason);
    PERFORM leafhopper.wake();
    RETURN 'cancelled';
END $$;

CREATE FUNCTION leafhopper.wake() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    sleeping boolean;
BEGIN
    -- A transaction that has notified can't be PREPAREd: the app can switch it off.
    IF coalesce(current_setting('leafhopper.notify', true), 'on') IN ('off', 'false', 'no', '0') THEN
        RETURN;
    END IF;
    SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 INTO sleeping
      FROM leafhopper.sleeping_until;
    -- A full queue fails the COMMIT of a transaction that has notified. So nearly all of it has to be free: that
    -- is what others may add until this transaction commits.
    IF sleeping AND pg_notification_queue_usage() < 0.1 THEN
        -- A hint without content: all notifications of a transaction fold into one.
        PERFORM pg_notify('leafhopper_wake', '');
    END IF;
END $$;

CREATE TABLE leafhopper.attempt (
    id bigint NOT NULL,
    call_id bigint NOT NULL,
    attempt integer NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    class text NOT NULL,
    status integer,
    error text,
    body text,
    instance text,
    CONSTRAINT attempt_class_is_known CHECK ((class = ANY (ARRAY['confirmed_again'::text, 'exists'::text, 'retry'::text, 'in_doubt'::text, 'failed'::text, 'probe_absent'::text, 'probe_unclear'::text])))
);

COMMENT ON TABLE leafhopper.attempt IS 'Attempts that did not confirm, and second confirmations.';

ALTER TABLE leafhopper.attempt ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME leafhopper.attempt_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE leafhopper.batch_mark (
    id bigint NOT NULL,
    batch_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');

ALTER TABLE leafhopper.batch_mark ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME leafhopper.batch_mark_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE leafhopper.finished (
    call_id bigint NOT NULL,
    batch_id uuid,
    state text NOT NULL,
    reason text,
    attempts integer DEFAULT 0 NOT NULL,
    last_status integer,
    last_error text,
    generation integer,
    fails_batch boolean DEFAULT false NOT NULL,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT confirmed_names_its_result CHECK (((state = 'confirmed'::text) = (generation IS NOT NULL))),
    CONSTRAINT failed_says_why CHECK (((state <> 'failed'::text) OR (reason = ANY (ARRAY['rejected'::text, 'attempts_exhausted'::text, 'gave_up'::text, 'key_conflict'::text, 'unsendable'::text])))),
    CONSTRAINT finished_state_is_final CHECK ((state = ANY (ARRAY['confirmed'::text, 'failed'::text, 'cancelled'::text, 'expired'::text]))),
    CONSTRAINT only_calls_of_a_batch_fail_it CHECK (((NOT fails_batch) OR (batch_id IS NOT NULL)))
);

COMMENT ON TABLE leafhopper.finished IS 'Calls that are final without a result of their own.';

CREATE TABLE leafhopper.instance (
    id uuid NOT NULL,
    name text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT now() NOT NULL,
    beat bigint DEFAULT 1 NOT NULL,
    lease interval NOT NULL,
    leaves jsonb DEFAULT '{}'::jsonb NOT NULL,
    witnessed_timeline integer,
    membership text DEFAULT ''::text NOT NULL
);

CREATE TABLE leafhopper.leaf_control (
    leaf text NOT NULL COLLATE pg_catalog."C",
    paused boolean DEFAULT false NOT NULL,
    hold_after_failed_head boolean DEFAULT false NOT NULL,
    resumed_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE leafhopper.order_hold (
    leaf text NOT NULL COLLATE pg_catalog."C",
    ordering_key text NOT NULL COLLATE pg_catalog."C",
    head bigint NOT NULL,
    held_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE leafhopper.origin (
    only_row boolean DEFAULT true NOT NULL,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    database_name text NOT NULL,
    database_oid bigint NOT NULL,
    changed_at timestamp with time zone,
    change text,
    CONSTRAINT origin_only_row_check CHECK (only_row)
);

CREATE TABLE leafhopper.result (
    leaf text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    generation integer NOT NULL,
    seq bigint NOT NULL,
    call_id bigint,
    batch_id uuid,
    attempt integer,
    attempts integer DEFAULT 0 NOT NULL,
    status integer NOT NULL,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    body jsonb,
    body_raw bytea,
    truncated boolean DEFAULT false NOT NULL,
    source text NOT NULL,
    weak boolean DEFAULT false NOT NULL,
    request_hash bytea,
    confirmed_at timestamp with time zone DEFAULT now() NOT NULL,
    undone_at timestamp with time zone,
    alive_until timestamp with time zone,
    CONSTRAINT generation_starts_at_1 CHECK ((generation >= 1)),
    CONSTRAINT only_one_of_result_body_and_body_raw CHECK (((body IS NULL) OR (body_raw IS NULL))),
    CONSTRAINT source_is_response_adopted_application_or_operator CHECK ((source = ANY (ARRAY['response'::text, 'adopted'::text, 'application'::text, 'operator'::text]))),
    CONSTRAINT status_is_an_http_status CHECK (((status >= 100) AND (status <= 999)))
);

COMMENT ON TABLE leafhopper.result IS 'What leaves confirmed: one row for each (leaf, key, generation).';

CREATE TABLE leafhopper.setting (
    name text NOT NULL,
    value text NOT NULL
);

CREATE VIEW leafhopper.call AS
 WITH alive AS MATERIALIZED (
         SELECT i.id,
            i.name,
            i.leaves
           FROM leafhopper.instance i
          WHERE ((i.heartbeat_at + i.lease) > now())
        ), stuck_after AS MATERIALIZED (
         SELECT (setting.value)::interval AS value
           FROM leafhopper.setting
          WHERE (setting.name = 'stuck_after'::text)
        )
 SELECT o.id,
    o.leaf,
    o.key,
    o.method,
    o.path,
    o.headers,
    o.body,
    o.body_raw,
    o.content_type,
    o.batch_id,
    o.run_when,
    o.ordering_key,
    o.priority,
    o.not_before,
    o.deadline,
    o.max_attempts,
    o.timeout,
    o.credential,
    o.probe,
    o.compensate,
    o.meta,
    o.created_at,
    o.undoes,
    stands.state,
        CASE
            WHEN (stands.state <> 'pending'::text) THEN COALESCE(d.reason, f.reason)
            WHEN (d.call_id IS NULL) THEN 'untracked'::text
            WHEN (EXISTS ( SELECT
               FROM leafhopper.origin
              WHERE (origin.changed_at IS NOT NULL))) THEN 'database_changed'::text
            WHEN (d.held = 'batch'::text) THEN 'waits_for_batch'::text
            WHEN ((d.run_when = 'ready'::text) AND ((EXISTS ( SELECT
               FROM leafhopper.batch b
              WHERE ((b.id = d.batch_id) AND (b.state <> ALL (ARRAY['open'::text, 'closing'::text]))))) OR (EXISTS ( SELECT
               FROM leafhopper.finished x
              WHERE ((x.batch_id = d.batch_id) AND x.fails_batch))))) THEN 'batch_cancelled'::text
            WHEN (NOT (EXISTS ( SELECT
               FROM alive a
              WHERE (a.leaves ? d.leaf)))) THEN 'leaf_unknown'::text
            WHEN (EXISTS ( SELECT
               FROM leafhopper.leaf_control c
              WHERE ((c.leaf = d.leaf) AND c.paused))) THEN 'leaf_paused'::text
            WHEN (d.held = 'key'::text) THEN 'waits_for_key'::text
            WHEN (waits.head IS NOT NULL) THEN 'waits_for_order'::text
            WHEN ((d.credential IS NOT NULL) AND (NOT (EXISTS ( SELECT
               FROM alive a
              WHERE (((a.leaves -> d.leaf) -> 'credentials'::text) ? d.credential))))) THEN 'credential_unknown'::text
            WHEN (EXISTS ( SELECT
               FROM alive a
              WHERE ((((a.leaves -> d.leaf) ->> 'breaker_open'::text))::boolean OR (((a.leaves -> d.leaf) -> 'blocked'::text) ? COALESCE(d.credential, ''::text))))) THEN 'breaker_open'::text
            WHEN (waits.holder IS NOT NULL) THEN 'waits_for_key'::text
            WHEN ((d.tries > 0) AND (d.due_at > now())) THEN 'retry'::text
            WHEN (EXISTS ( SELECT
               FROM alive a
              WHERE (((a.leaves -> d.leaf) ->> 'rate_limited'::text))::boolean)) THEN 'rate_limited'::text
            ELSE NULL::text
        END AS reason,
        CASE
            WHEN (stands.state = 'pending'::text) THEN COALESCE(waits.head, waits.holder)
            ELSE NULL::bigint
        END AS waits_for,
    COALESCE(d.attempts, f.attempts, r.attempts, 0) AS attempts,
        CASE
            WHEN ((d.state = 'in_doubt'::text) OR ((d.state = 'pending'::text) AND (d.held IS NULL))) THEN d.due_at
            ELSE NULL::timestamp with time zone
        END AS next_attempt_at,
    d.in_doubt_since,
    COALESCE(d.last_status, f.last_status, r.status) AS last_status,
    COALESCE(d.last_error, f.last_error) AS last_error,
        CASE
            WHEN (d.state = 'dispatching'::text) THEN COALESCE(( SELECT i.name
               FROM leafhopper.instance i
              WHERE (i.id = d.instance)), (d.instance)::text)
            ELSE NULL::text
        END AS claimed_by,
    COALESCE(f.finished_at, r.confirmed_at) AS finished_at,
    r.undone_at,
    COALESCE(
        CASE stands.state
            WHEN 'parked'::text THEN true
            WHEN 'dispatching'::text THEN (NOT (EXISTS ( SELECT
               FROM alive a
              WHERE (a.id = d.instance))))
            WHEN 'in_doubt'::text THEN (d.in_doubt_since < (now() - ( SELECT stuck_after.value
               FROM stuck_after)))
            WHEN 'pending'::text THEN
            CASE
                WHEN (d.call_id IS NULL) THEN (o.created_at < (now() - ( SELECT stuck_after.value
                   FROM stuck_after)))
                WHEN ((d.held = ANY (ARRAY['order'::text, 'arrived'::text])) AND waits.hold) THEN true
                WHEN (d.held = ANY (ARRAY['batch'::text, 'order'::text, 'key'::text])) THEN false
                WHEN (NOT (EXISTS ( SELECT
                   FROM alive a
                  WHERE (a.leaves ? d.leaf)))) THEN true
                ELSE ((GREATEST(d.due_at, d.enqueued_at) < (now() - ( SELECT stuck_after.value
                   FROM stuck_after))) OR ((d.tries > 0) AND (d.first_claimed_at < (now() - ( SELECT stuck_after.value
                   FROM stuck_after)))) OR COALESCE((d.deferred_since < (now() - ( SELECT stuck_after.value
                   FROM stuck_after))), false))
            END
            ELSE NULL::boolean
        END, false) AS stuck
   FROM ((((((leafhopper.outbox o
     LEFT JOIN leafhopper.dispatch d ON ((d.call_id = o.id)))
     LEFT JOIN leafhopper.finished f ON ((f.call_id = o.id)))
     LEFT JOIN leafhopper.result r ON (((r.leaf = o.leaf) AND (r.key = o.key) AND ((r.call_id = o.id) OR (r.generation = f.generation)))))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (d.call_id IS NOT NULL) THEN d.state
                    WHEN (f.call_id IS NOT NULL) THEN f.state
                    WHEN (r.call_id = o.id) THEN 'confirmed'::text
                    ELSE 'pending'::text
                END AS state) stands)
     LEFT JOIN LATERAL ( SELECT ( SELECT h.head
                   FROM leafhopper.order_hold h
                  WHERE ((d.held = ANY (ARRAY['order'::text, 'arrived'::text])) AND (h.leaf = d.leaf) AND (h.ordering_key = d.ordering_key))) AS hold,
            ( SELECT x.call_id
                   FROM leafhopper.dispatch x
                  WHERE ((d.held = ANY (ARRAY['order'::text, 'arrived'::text])) AND (x.leaf = d.leaf) AND (x.ordering_key = d.ordering_key) AND ((x.held IS NULL) OR (x.held = 'key'::text)))) AS live,
            ( SELECT x.call_id
                   FROM leafhopper.dispatch x
                  WHERE ((d.held = 'key'::text) AND (x.leaf = d.leaf) AND (x.key = d.key) AND (x.state = ANY (ARRAY['dispatching'::text, 'in_doubt'::text, 'parked'::text])))) AS holder,
            ( SELECT x.call_id
                   FROM (leafhopper.result x
                     JOIN leafhopper.batch b ON ((b.id = x.batch_id)))
                  WHERE ((d.held IS NULL) AND (d.tries > 0) AND (d.due_at > now()) AND (x.leaf = o.leaf) AND (x.key = o.key) AND (x.undone_at IS NULL) AND (x.call_id <> o.id) AND ((b.state = ANY (ARRAY['cancelling'::text, 'compensating'::text])) OR ((b.state = 'cancelled'::text) AND (x.confirmed_at >= (b.changed_at - '00:00:10'::interval)) AND (x.confirmed_at >= (now() - '00:05:00'::interval)))))) AS owner) w ON (true))
     CROSS JOIN LATERAL ( SELECT COALESCE(w.live, w.hold) AS head,
            ((w.live IS NULL) AND (w.hold IS NOT NULL)) AS hold,
            COALESCE(w.holder, w.owner) AS holder) waits);

COMMENT ON VIEW leafhopper.call IS 'One row for each call, with where it stands and why.';

CREATE VIEW leafhopper.effect AS
 SELECT r.batch_id,
    r.call_id,
    r.leaf,
    r.key,
    r.generation,
    r.seq,
    r.weak,
    r.confirmed_at,
    o.compensate,
    c.id AS compensation,
        CASE
            WHEN (f.reason = 'waived'::text) THEN NULL::text
            WHEN ((o.compensate IS NOT NULL) OR (c.id IS NOT NULL)) THEN 'row'::text
            WHEN (o.method <> ALL (ARRAY['GET'::text, 'HEAD'::text])) THEN 'leaf'::text
            ELSE NULL::text
        END AS undone_by
   FROM (((leafhopper.result r
     JOIN leafhopper.outbox o ON (((o.id = r.call_id) AND (o.run_when = 'ready'::text))))
     LEFT JOIN leafhopper.outbox c ON (((c.leaf = r.leaf) AND (c.key = ((r.key || ':undo:'::text) || r.generation)) AND (c.undoes IS NOT NULL))))
     LEFT JOIN leafhopper.finished f ON ((f.call_id = c.id)))
  WHERE ((r.batch_id IS NOT NULL) AND (r.undone_at IS NULL) AND (r.key !~ ':undo:[0-9]+$'::text));

CREATE TABLE leafhopper.job (
    id bigint NOT NULL,
    action text NOT NULL,
    filter jsonb NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    spread interval,
    state text DEFAULT 'running'::text NOT NULL,
    last_id bigint NOT NULL,
    after_id bigint DEFAULT 0 NOT NULL,
    matched bigint,
    done bigint DEFAULT 0 NOT NULL,
    refused bigint DEFAULT 0 NOT NULL,
    refusals jsonb DEFAULT '[]'::jsonb NOT NULL,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT job_action_is_known CHECK ((action = ANY (ARRAY['retry'::text, 'cancel'::text, 'release'::text, 'resolve_confirmed'::text, 'resolve_not_executed'::text, 'waive'::text]))),
    CONSTRAINT job_failed_says_why CHECK (((state = 'failed'::text) = (error IS NOT NULL))),
    CONSTRAINT job_is_finished_unless_it_runs CHECK (((state = 'running'::text) = (finished_at IS NULL))),
    CONSTRAINT job_state_is_known CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'failed'::text, 'cancelled'::text])))
);

COMMENT ON TABLE leafhopper.job IS 'Changes by hand of all calls that match a filter, and how far each has come.';

ALTER TABLE leafhopper.job ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME leafhopper.job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE leafhopper.operator_action (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    call_id bigint,
    batch_id uuid,
    leaf text COLLATE pg_catalog."C",
    reason text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE leafhopper.operator_action ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME leafhopper.operator_action_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE leafhopper.outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME leafhopper.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE leafhopper.result ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME leafhopper.result_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE leafhopper.schema_version (
    version integer NOT NULL,
    name text NOT NULL,
    oldest_reader integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE SEQUENCE leafhopper.sleeping_until
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

ALTER TABLE ONLY leafhopper.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (id);

ALTER TABLE ONLY leafhopper.batch_mark
    ADD CONSTRAINT batch_mark_pkey PRIMARY KEY (id);

ALTER TABLE ONLY leafhopper.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (id);

ALTER TABLE ONLY leafhopper.dispatch
    ADD CONSTRAINT dispatch_pkey PRIMARY KEY (call_id);

ALTER TABLE ONLY leafhopper.finished
    ADD CONSTRAINT finished_pkey PRIMARY KEY (call_id);

ALTER TABLE ONLY leafhopper.instance
    ADD CONSTRAINT instance_pkey PRIMARY KEY (id);

ALTER TABLE leafhopper.dispatch
    ADD CONSTRAINT is_consistent CHECK (leafhopper.is_consistent(dispatch.*));

ALTER TABLE leafhopper.outbox
    ADD CONSTRAINT is_well_formed CHECK (leafhopper.is_well_formed(outbox.*));

ALTER TABLE ONLY leafhopper.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY leafhopper.leaf_control
    ADD CONSTRAINT leaf_control_pkey PRIMARY KEY (leaf);

ALTER TABLE ONLY leafhopper.operator_action
    ADD CONSTRAINT operator_action_pkey PRIMARY KEY (id);

ALTER TABLE ONLY leafhopper.order_hold
    ADD CONSTRAINT order_hold_pkey PRIMARY KEY (leaf, ordering_key);

ALTER TABLE ONLY leafhopper.origin
    ADD CONSTRAINT origin_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY leafhopper.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY leafhopper.result
    ADD CONSTRAINT result_pkey PRIMARY KEY (leaf, key, generation);

ALTER TABLE ONLY leafhopper.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);

ALTER TABLE ONLY leafhopper.setting
    ADD CONSTRAINT setting_pkey PRIMARY KEY (name);

CREATE INDEX attempt_call ON leafhopper.attempt USING btree (call_id, id);

CREATE INDEX batch_created ON leafhopper.batch USING btree (created_at, id);

CREATE INDEX batch_failed ON leafhopper.batch USING btree (state, created_at, id) WHERE (state = ANY (ARRAY['cancelled'::text, 'finished'::text]));

CREATE INDEX batch_live ON leafhopper.batch USING btree (state) WHERE (state = ANY (ARRAY['open'::text, 'closing'::text, 'cancelling'::text, 'compensating'::text]));

CREATE INDEX batch_unfinished ON leafhopper.batch USING btree (id) WHERE ((state <> 'open'::text) AND (finished_at IS NULL));

CREATE INDEX dispatch_arrived ON leafhopper.dispatch USING btree (call_id) WHERE (held = 'arrived'::text);

CREATE INDEX dispatch_batch ON leafhopper.dispatch USING btree (batch_id, run_when) WHERE (batch_id IS NOT NULL);

CREATE INDEX dispatch_doubt ON leafhopper.dispatch USING btree (leaf, due_at) WHERE (state = 'in_doubt'::text);

CREATE INDEX dispatch_ends ON leafhopper.dispatch USING btree (LEAST(deadline, give_up_at)) WHERE ((state = 'pending'::text) AND ((deadline IS NOT NULL) OR (give_up_at IS NOT NULL)));

CREATE INDEX dispatch_fresh ON leafhopper.dispatch USING btree (leaf, priority, call_id) WHERE ((state = 'pending'::text) AND (held IS NULL) AND (due_at IS NULL));

CREATE INDEX dispatch_held_key ON leafhopper.dispatch USING btree (leaf, key, call_id) WHERE (held = 'key'::text);

CREATE INDEX dispatch_held_order ON leafhopper.dispatch USING btree (leaf, ordering_key, call_id) WHERE (held = 'order'::text);

CREATE UNIQUE INDEX dispatch_one_at_a_time ON leafhopper.dispatch USING btree (leaf, key) WHERE (state = ANY (ARRAY['dispatching'::text, 'in_doubt'::text, 'parked'::text]));

CREATE UNIQUE INDEX dispatch_one_head ON leafhopper.dispatch USING btree (leaf, ordering_key) WHERE ((ordering_key IS NOT NULL) AND ((held IS NULL) OR (held = 'key'::text)));

CREATE INDEX dispatch_timed ON leafhopper.dispatch USING btree (leaf, due_at) WHERE ((state = 'pending'::text) AND (held IS NULL) AND (due_at IS NOT NULL));

CREATE INDEX finished_batch ON leafhopper.finished USING btree (batch_id, state) WHERE (batch_id IS NOT NULL);

CREATE INDEX finished_fails_batch ON leafhopper.finished USING btree (batch_id) WHERE fails_batch;

CREATE INDEX finished_state ON leafhopper.finished USING btree (state, finished_at) WHERE (state <> 'confirmed'::text);

CREATE INDEX job_running ON leafhopper.job USING btree (id) WHERE (state = 'running'::text);

CREATE INDEX operator_action_batch ON leafhopper.operator_action USING btree (batch_id) WHERE (batch_id IS NOT NULL);

CREATE INDEX operator_action_call ON leafhopper.operator_action USING btree (call_id) WHERE (call_id IS NOT NULL);

CREATE INDEX operator_action_leaf ON leafhopper.operator_action USING btree (leaf, id) WHERE (action = ANY (ARRAY['pause'::text, 'resume'::text]));

CREATE INDEX order_hold_head ON leafhopper.order_hold USING btree (head);

CREATE INDEX outbox_batch ON leafhopper.outbox USING btree (batch_id) WHERE (batch_id IS NOT NULL);

CREATE UNIQUE INDEX outbox_compensation ON leafhopper.outbox USING btree (leaf, key) WHERE (undoes IS NOT NULL);

CREATE INDEX outbox_key ON leafhopper.outbox USING btree (leaf, key);

CREATE INDEX result_batch ON leafhopper.result USING btree (batch_id, seq) WHERE ((batch_id IS NOT NULL) AND (undone_at IS NULL) AND (key !~ ':undo:[0-9]+$'::text));

CREATE UNIQUE INDEX result_seq ON leafhopper.result USING btree (seq);

CREATE TRIGGER batch_added AFTER INSERT ON leafhopper.batch FOR EACH ROW WHEN ((new.state <> 'open'::text)) EXECUTE FUNCTION leafhopper.batch_changed();

CREATE TRIGGER batch_changed AFTER UPDATE ON leafhopper.batch FOR EACH ROW WHEN (((old.state <> new.state) OR (old.sealed <> new.sealed) OR (old.last_phase_at IS DISTINCT FROM new.last_phase_at) OR ((old.finished_at IS NOT NULL) AND (new.finished_at IS NULL)))) EXECUTE FUNCTION leafhopper.batch_changed();

CREATE TRIGGER call_ended AFTER DELETE ON leafhopper.dispatch FOR EACH ROW WHEN ((old.batch_id IS NOT NULL)) EXECUTE FUNCTION leafhopper.call_ended();

CREATE TRIGGER compensation_confirmed AFTER INSERT ON leafhopper.result FOR EACH ROW WHEN (((new.key ~~ '%:undo:%'::text) AND (new.key ~ ':undo:[0-9]+$'::text))) EXECUTE FUNCTION leafhopper.compensation_confirmed();

CREATE TRIGGER outbox_inserted AFTER INSERT ON leafhopper.outbox REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION leafhopper.outbox_inserted();

CREATE TRIGGER result_changed AFTER INSERT OR UPDATE OF undone_at ON leafhopper.result FOR EACH ROW WHEN ((new.batch_id IS NOT NULL)) EXECUTE FUNCTION leafhopper.result_changed();

REVOKE ALL ON FUNCTION leafhopper.batch_changed() FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.batch_is_open(batch uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.batch_reason(b leafhopper.batch) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.batch_waits_since(b leafhopper.batch) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.call_ended() FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.can_be_asked_first(call bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.cancel(call_id bigint, reason text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.cancel_batch(batch uuid, reason text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.compensation_confirmed() FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.confirm(leaf text, key text, status integer, body jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.end_call(call bigint, new_state text, why text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.failure_cancels(batch uuid, run_when text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.forget(leaf text, key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.is_consistent(d leafhopper.dispatch) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.is_told(call bigint, attempt integer, class text, status integer, error text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.may_run_again(call bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.note(action text, call_id bigint, batch_id uuid, leaf text, reason text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.outbox_inserted() FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.resolve_not_executed(call_id bigint, reason text, send boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.result_changed() FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.retry(call_id bigint, reason text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.seal(batch uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.standing(leaf text, key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.take_word(leaf text, key text, status integer, body jsonb, source text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.waive(call_id bigint, reason text) FROM PUBLIC;

REVOKE ALL ON FUNCTION leafhopper.wake() FROM PUBLIC;

INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (1, 'tables', 1);
INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (2, 'trigger_and_view', 2);
INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (3, 'functions', 3);
INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (4, 'jobs', 4);
INSERT INTO leafhopper.setting VALUES ('stuck_after', '5 minutes');

RESET check_function_bodies;
