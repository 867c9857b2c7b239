-- The functions for transactions of apps and operators.
-- Locks:    none on a table that was there.
-- Reads:    none.
-- Breaking: no.

INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (3, 'functions', 3);

-- ---------------------------------------------------------------------------------------------------
-- Functions for the app's or an operator's own transactions. They raise when they refuse.
-- They may wait for the sidecar's short transactions; the sidecar never waits for theirs.
-- ---------------------------------------------------------------------------------------------------

-- Ends a live call without a result. Its dispatch row is locked by the caller.
CREATE FUNCTION leafhopper.end_call(call bigint, new_state text, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- Who acts: what a command says of itself, else the role that is logged in. SECURITY DEFINER, as take_word(): so an
-- operator's role needs no right on the tables that they write.
CREATE FUNCTION leafhopper.note(action text, call_id bigint, batch_id uuid, leaf text, reason text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO leafhopper.operator_action (actor, action, call_id, batch_id, leaf, reason)
    VALUES (coalesce(nullif(current_setting('leafhopper.actor', true), ''), session_user),
            action, call_id, batch_id, leaf, reason)
$$;

-- Somebody's word as the confirmation; false where one stood already. Either way no call of the key stays in doubt or
-- parked.
CREATE FUNCTION leafhopper.take_word(leaf text, key text, status integer, body jsonb, source text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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

CREATE FUNCTION leafhopper.confirm(leaf text, key text, status integer DEFAULT 200, body jsonb DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

CREATE FUNCTION leafhopper.forget(leaf text, key text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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

-- Is the phase of this call's batch still under way, so that it may be sent again?
CREATE FUNCTION leafhopper.may_run_again(call bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
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

CREATE FUNCTION leafhopper.retry(call_id bigint, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- The effect that a compensation could not undo stands, and that is known: the teardown goes on without it.
CREATE FUNCTION leafhopper.waive(call_id bigint, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
-- A constraint's function needs the right of whoever inserts. It looks at nothing but the row that it is given.
GRANT EXECUTE ON FUNCTION leafhopper.is_well_formed(leafhopper.outbox) TO PUBLIC;
