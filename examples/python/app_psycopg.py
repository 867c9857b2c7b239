#!/usr/bin/env python3
"""The app with psycopg 3; `follow` reacts by LISTEN.

    app_psycopg.py create NAME           one call
    app_psycopg.py launch NAME AMOUNT    a batch: site and charge, or neither
    app_psycopg.py follow                marks sites as live or failed, until Ctrl-C
"""

import os
import sys
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

OUTBOX = """
    INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, run_when)
    VALUES (%s, %s, %s, %s, %s, %s) RETURNING id
"""


def call(conn, leaf, key, path, body, batch=None, run_when="ready"):
    row = conn.execute(OUTBOX, (leaf, key, path, Jsonb(body), batch, run_when)).fetchone()
    return row[0]


def new_site(conn, name, batch=None):
    """The site, the call that makes it, and what the account pays for it: all of it, or nothing."""
    row = conn.execute("INSERT INTO site (name, batch_id) VALUES (%s, %s) RETURNING id", (name, batch))
    site = row.fetchone()[0]
    call_id = call(conn, "hosting", f"site:{site}", "/sites", {"name": name}, batch)
    conn.execute("UPDATE site SET call_id = %s WHERE id = %s", (call_id, site))
    # Without credit this fails, and no call is made.
    conn.execute("UPDATE account SET credit = credit - 1 WHERE id = 1")
    return site


def create(conn, name):
    with conn.transaction():
        site = new_site(conn, name)
    print(f"site {site} is requested")


def launch(conn, name, amount):
    batch = uuid4()
    with conn.transaction():
        site = new_site(conn, name, batch)
        call(conn, "pay", f"site:{site}:charge", "/charges", {"amount": int(amount)}, batch)
        for run_when, say in (("batch_succeeded", "welcome"), ("batch_failed", "sorry")):
            call(conn, "mail", f"site:{site}:{say}", "/messages", {"say": say}, batch, run_when)
    print(f"site {site} is requested, in batch {batch}")


def follow(conn):
    conn.execute("LISTEN leafhopper_result")
    conn.execute("LISTEN leafhopper_call")
    while True:
        # First, for what happened while nobody listened.
        changed = conn.execute("""
            UPDATE site SET status = o.status, remote_id = o.remote_id
              FROM site_outcome o WHERE o.site_id = site.id AND o.status IS NOT NULL
            RETURNING site.name, site.status
        """)
        for name, status in changed:
            print(f"{name} is {status}", flush=True)
        # A notification is a hint: it says that there is something, and may be lost with a connection.
        for _ in conn.notifies(timeout=30, stop_after=1):
            pass


def main():
    commands = {"create": create, "launch": launch, "follow": follow}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        try:
            commands[sys.argv[1]](conn, *sys.argv[2:])
        except psycopg.errors.CheckViolation as error:
            sys.exit(f"nothing is requested: {error.diag.message_primary}")


if __name__ == "__main__":
    main()
