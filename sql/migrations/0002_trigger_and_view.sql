-- What a row must be, what happens at an INSERT, and the view of where each call stands.
-- Locks:    ACCESS EXCLUSIVE on outbox; SHARE ROW EXCLUSIVE on batch, dispatch, result. Nobody writes them before 0003 is there.
-- Reads:    outbox. It is empty until then.
-- Breaking: no.

INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (2, 'trigger_and_view', 2);

-- ---------------------------------------------------------------------------------------------------
-- What a row of the outbox must be.
-- ---------------------------------------------------------------------------------------------------
-- One constraint that calls a function, not one for each rule: PostgreSQL reads the text of every constraint
-- anew for each statement, which for thirty of them costs more than all else of an INSERT; what a function says is planned
-- once for each session. It refuses as a constraint of the rule's name would: of several broken rules the first in the
-- order of their names, and a rule that is neither true nor false is not broken.
CREATE FUNCTION leafhopper.is_well_formed(o leafhopper.outbox) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- A constraint, not a trigger: it holds also where triggers don't fire, and after those of the app have changed the row.
ALTER TABLE leafhopper.outbox ADD CONSTRAINT is_well_formed CHECK (leafhopper.is_well_formed(outbox));

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
    -- A full queue fails the COMMIT of a transaction that has notified. So nearly all of it has to be free: that
    -- is what others may add until this transaction commits.
    IF sleeping AND pg_notification_queue_usage() < 0.1 THEN
        -- A hint without content: all notifications of a transaction fold into one.
        PERFORM pg_notify('leafhopper_wake', '');
    END IF;
END $$;

CREATE FUNCTION leafhopper.outbox_inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- ORIGIN (the default): the apply worker of a logical subscriber does not fire it, so a copy sends nothing.
CREATE TRIGGER outbox_inserted AFTER INSERT ON leafhopper.outbox
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION leafhopper.outbox_inserted();

-- ---------------------------------------------------------------------------------------------------
-- What follows from a change in its own transaction, whoever makes it: marks of the batch, and the undoing of what a
-- compensation's word undoes.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION leafhopper.batch_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO leafhopper.batch_mark (batch_id) VALUES (NEW.id);
    RETURN NULL;
END $$;

CREATE FUNCTION leafhopper.result_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO leafhopper.batch_mark (batch_id) VALUES (NEW.batch_id);
    RETURN NULL;
END $$;

-- Whatever ended it: also where a result stands already, and nothing is written but that it lives no more.
CREATE FUNCTION leafhopper.call_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO leafhopper.batch_mark (batch_id) VALUES (OLD.batch_id);
    RETURN NULL;
END $$;

CREATE FUNCTION leafhopper.compensation_confirmed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE leafhopper.result SET undone_at = clock_timestamp()
     WHERE leaf = NEW.leaf AND key = regexp_replace(NEW.key, ':undo:[0-9]+$', '')
       AND generation::text = substring(NEW.key FROM ':undo:([0-9]+)$') AND undone_at IS NULL;
    RETURN NULL;
END $$;

CREATE TRIGGER result_changed AFTER INSERT OR UPDATE OF undone_at ON leafhopper.result
    FOR EACH ROW WHEN (NEW.batch_id IS NOT NULL) EXECUTE FUNCTION leafhopper.result_changed();
CREATE TRIGGER compensation_confirmed AFTER INSERT ON leafhopper.result
    FOR EACH ROW WHEN (NEW.key LIKE '%:undo:%' AND NEW.key ~ ':undo:[0-9]+$') EXECUTE FUNCTION leafhopper.compensation_confirmed();
-- For each row: a transition table would be filled for all those calls, too, that belong to no batch.
CREATE TRIGGER call_ended AFTER DELETE ON leafhopper.dispatch
    FOR EACH ROW WHEN (OLD.batch_id IS NOT NULL) EXECUTE FUNCTION leafhopper.call_ended();
CREATE TRIGGER batch_added AFTER INSERT ON leafhopper.batch
    FOR EACH ROW WHEN (NEW.state <> 'open') EXECUTE FUNCTION leafhopper.batch_changed();
CREATE TRIGGER batch_changed AFTER UPDATE ON leafhopper.batch
    FOR EACH ROW WHEN (OLD.state <> NEW.state OR OLD.sealed <> NEW.sealed
                       OR OLD.last_phase_at IS DISTINCT FROM NEW.last_phase_at
                       OR (OLD.finished_at IS NOT NULL AND NEW.finished_at IS NULL))
    EXECUTE FUNCTION leafhopper.batch_changed();

-- ---------------------------------------------------------------------------------------------------
-- Small rules that functions and queries share.
-- ---------------------------------------------------------------------------------------------------

-- Does this batch still take work? One that is closing does: the next look opens it again where a call lives. (A claim
-- takes none of its calls meanwhile.) Reads two rows by their keys, locks nothing.
CREATE FUNCTION leafhopper.batch_is_open(batch uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = batch AND b.state NOT IN ('open', 'closing'))
       AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = batch AND f.fails_batch)
$$;

-- Does a failure of one of its calls cancel this batch?
CREATE FUNCTION leafhopper.failure_cancels(batch uuid, run_when text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT batch IS NOT NULL AND run_when = 'ready'
       AND NOT coalesce((SELECT b.allow_failures OR b.state NOT IN ('open', 'closing')
                           FROM leafhopper.batch b WHERE b.id = batch), false)
$$;

-- May this call, which perhaps was executed before the database changed, become one in doubt now? Only as the head of
-- its ordering key, and of its effect key the first one, where no other is under way.
CREATE FUNCTION leafhopper.can_be_asked_first(call bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
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

-- The standing result of a key. VOLATILE, so that it looks with a snapshot of its own: a statement that has
-- locked a call's row sees what was confirmed until then (PostgreSQL, chapter 38.7).
CREATE FUNCTION leafhopper.standing(leaf text, key text)
RETURNS TABLE (generation integer, call_id bigint, source text)
LANGUAGE sql VOLATILE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.generation, r.call_id, r.source FROM leafhopper.result r
     WHERE r.leaf = standing.leaf AND r.key = standing.key AND r.undone_at IS NULL
     ORDER BY r.generation DESC LIMIT 1
$$;

-- Is this attempt told by the history already? VOLATILE for the same reason.
CREATE FUNCTION leafhopper.is_told(call bigint, attempt integer, class text, status integer, error text) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM leafhopper.attempt a
                    WHERE a.call_id = call AND a.attempt = is_told.attempt AND a.class = is_told.class
                      AND a.status IS NOT DISTINCT FROM is_told.status AND a.error IS NOT DISTINCT FROM is_told.error)
$$;

-- The effects of batches that stand: of each result of a 'ready' call, what undoes it, should its batch fail. That is its own
-- row (or has begun), else its leaf, if that has a compensation; NULL where nothing does: a request that changes nothing has
-- no effect that the leaf's could undo, and what somebody has waived is let stand.
CREATE VIEW leafhopper.effect AS
SELECT r.batch_id, r.call_id, r.leaf, r.key, r.generation, r.seq, r.weak, r.confirmed_at, o.compensate,
       c.id AS compensation,
       CASE WHEN f.reason = 'waived' THEN NULL
            WHEN o.compensate IS NOT NULL OR c.id IS NOT NULL THEN 'row'
            WHEN o.method NOT IN ('GET', 'HEAD') THEN 'leaf' END AS undone_by
  FROM leafhopper.result r
  JOIN leafhopper.outbox o ON o.id = r.call_id AND o.run_when = 'ready'
  LEFT JOIN leafhopper.outbox c ON c.leaf = r.leaf AND c.key = r.key || ':undo:' || r.generation AND c.undoes IS NOT NULL
  LEFT JOIN leafhopper.finished f ON f.call_id = c.id
 WHERE r.batch_id IS NOT NULL AND r.undone_at IS NULL AND r.key !~ ':undo:[0-9]+$';

-- Since when a batch is where it should not stay: stuck, once that is longer ago than stuck_after.
CREATE FUNCTION leafhopper.batch_waits_since(b leafhopper.batch) RETURNS timestamptz
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN b.state = 'open' AND NOT b.sealed THEN b.idle_since
            WHEN b.state IN ('cancelling', 'compensating') THEN b.changed_at END;

-- Why a batch waits for somebody. Its cost follows the batch's own rows.
CREATE FUNCTION leafhopper.batch_reason(b leafhopper.batch) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
           WHEN d.run_when = 'ready'
                AND (EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state NOT IN ('open', 'closing'))
                     OR EXISTS (SELECT FROM leafhopper.finished x WHERE x.batch_id = d.batch_id AND x.fails_batch))
               THEN 'batch_cancelled'
           WHEN NOT EXISTS (SELECT FROM alive a WHERE a.leaves ? d.leaf) THEN 'leaf_unknown'
           WHEN EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = d.leaf AND c.paused) THEN 'leaf_paused'
           WHEN d.held = 'key' THEN 'waits_for_key'
           WHEN waits.head IS NOT NULL THEN 'waits_for_order'
           WHEN d.credential IS NOT NULL AND NOT EXISTS (
                SELECT FROM alive a WHERE a.leaves -> d.leaf -> 'credentials' ? d.credential) THEN 'credential_unknown'
           WHEN EXISTS (SELECT FROM alive a WHERE (a.leaves -> d.leaf ->> 'breaker_open')::boolean
                           OR a.leaves -> d.leaf -> 'blocked' ? coalesce(d.credential, '')) THEN 'breaker_open'
           WHEN waits.holder IS NOT NULL THEN 'waits_for_key'
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
                    -- Behind a head that has ended: nothing but a person moves it.
                    WHEN d.held IN ('order', 'arrived') AND waits.hold THEN true
                    WHEN d.held IN ('batch', 'order', 'key') THEN false
                    WHEN NOT EXISTS (SELECT FROM alive a WHERE a.leaves ? d.leaf) THEN true
                    ELSE greatest(d.due_at, d.enqueued_at) < now() - (SELECT value FROM stuck_after)
                      OR (d.tries > 0 AND d.first_claimed_at < now() - (SELECT value FROM stuck_after))
                      OR coalesce(d.deferred_since < now() - (SELECT value FROM stuck_after), false)
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
                 AND x.state IN ('dispatching', 'in_doubt', 'parked')) AS holder,
             -- Its effect stands, and is about to be undone with the batch that owns it.
             (SELECT x.call_id FROM leafhopper.result x JOIN leafhopper.batch b ON b.id = x.batch_id
               WHERE d.held IS NULL AND d.tries > 0 AND d.due_at > now()
                 AND x.leaf = o.leaf AND x.key = o.key AND x.undone_at IS NULL AND x.call_id <> o.id
                 AND (b.state IN ('cancelling', 'compensating')
                      OR b.state = 'cancelled' AND x.confirmed_at >= b.changed_at - interval '10 s'
                                               AND x.confirmed_at >= now() - interval '5 min')) AS owner) w ON true
  CROSS JOIN LATERAL (SELECT coalesce(w.live, w.hold) AS head, w.live IS NULL AND w.hold IS NOT NULL AS hold,
                             coalesce(w.holder, w.owner) AS holder) waits;

COMMENT ON VIEW leafhopper.call IS 'One row for each call, with where it stands and why.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leafhopper FROM PUBLIC;
