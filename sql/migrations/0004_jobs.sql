-- Changes by hand of many calls: jobs that instances work on.
-- Locks:    SHARE on batch, operator_action. For as long as reading them takes: batches are few beside calls, and what people did is little.
-- Reads:    batch, operator_action. For their indexes.
-- Breaking: no.

INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (4, 'jobs', 4);

-- One row for each change of all calls that match a filter. Any instance takes its next calls: their changes and how
-- far it has come are one transaction, so what a crash interrupts goes on elsewhere, and no call is taken twice.
CREATE TABLE leafhopper.job (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action      text        NOT NULL,
    -- Which calls, and what is said of them beside the action.
    filter      jsonb       NOT NULL,
    detail      jsonb       NOT NULL DEFAULT '{}',
    actor       text        NOT NULL,
    reason      text        NOT NULL,
    -- Over how long what is sent again is spread.
    spread      interval,
    state       text        NOT NULL DEFAULT 'running',
    -- Calls up to this id are meant; those up to that one were seen to.
    last_id     bigint      NOT NULL,
    after_id    bigint      NOT NULL DEFAULT 0,
    -- How many matched when it began; NULL where counting them would have taken long.
    matched     bigint,
    done        bigint      NOT NULL DEFAULT 0,
    refused     bigint      NOT NULL DEFAULT 0,
    -- The first of these: {"id": …, "message": …, "hint": …}.
    refusals    jsonb       NOT NULL DEFAULT '[]',
    -- What ended it before its end.
    error       text,
    created_at  timestamptz NOT NULL DEFAULT now(),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,

    CONSTRAINT job_action_is_known
        CHECK (action IN ('retry', 'cancel', 'release', 'resolve_confirmed', 'resolve_not_executed', 'waive')),
    CONSTRAINT job_state_is_known
        CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
    CONSTRAINT job_is_finished_unless_it_runs
        CHECK ((state = 'running') = (finished_at IS NULL)),
    CONSTRAINT job_failed_says_why
        CHECK ((state = 'failed') = (error IS NOT NULL))
);

CREATE INDEX job_running ON leafhopper.job (id) WHERE state = 'running';

-- Who paused a leaf, and why.
CREATE INDEX operator_action_leaf ON leafhopper.operator_action (leaf, id) WHERE action IN ('pause', 'resume');

-- Lists of the few batches that did not succeed, newest first.
CREATE INDEX batch_failed ON leafhopper.batch (state, created_at, id) WHERE state IN ('cancelled', 'finished');

-- What a job does is kept under its number.
CREATE OR REPLACE FUNCTION leafhopper.note(action text, call_id bigint, batch_id uuid, leaf text, reason text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO leafhopper.operator_action (actor, action, call_id, batch_id, leaf, reason, detail)
    VALUES (coalesce(nullif(current_setting('leafhopper.actor', true), ''), session_user),
            action, call_id, batch_id, leaf, reason,
            jsonb_strip_nulls(jsonb_build_object('job', nullif(current_setting('leafhopper.job', true), '')::bigint)))
$$;

COMMENT ON TABLE leafhopper.job IS 'Changes by hand of all calls that match a filter, and how far each has come.';
