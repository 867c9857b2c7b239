#!/usr/bin/env python3
"""The app with SQLAlchemy's ORM; `follow` polls the results by seq.

    app_sqlalchemy.py create NAME           one call
    app_sqlalchemy.py launch NAME AMOUNT    a batch: site and charge, or neither
    app_sqlalchemy.py follow                marks sites as live or failed, until Ctrl-C
"""

import os
import re
import sys
import time
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import FetchedValue, Text, create_engine, func, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    type_annotation_map = {str: Text, dict: JSONB}


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    credit: Mapped[int]


class Site(Base):
    __tablename__ = "site"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=FetchedValue())
    call_id: Mapped[int | None]
    batch_id: Mapped[UUID | None]
    remote_id: Mapped[str | None]


class Reader(Base):
    __tablename__ = "reader"
    name: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(default=0)


class Outbox(Base):
    """A call. Map the columns that the app writes: what is not said is left to the column's default."""

    __tablename__ = "outbox"
    __table_args__ = {"schema": "leafhopper"}
    id: Mapped[int] = mapped_column(primary_key=True)
    leaf: Mapped[str]
    key: Mapped[str]
    path: Mapped[str]
    body: Mapped[dict]
    batch_id: Mapped[UUID | None]
    run_when: Mapped[str] = mapped_column(server_default=FetchedValue())


class Result(Base):
    """A confirmation. To be read only."""

    __tablename__ = "result"
    __table_args__ = {"schema": "leafhopper"}
    seq: Mapped[int] = mapped_column(primary_key=True)
    leaf: Mapped[str]
    key: Mapped[str]
    body: Mapped[dict | None]
    confirmed_at: Mapped[datetime]


def new_site(session, name, batch=None):
    """The site, the call that makes it, and what the account pays for it: all of it, or nothing."""
    site = Site(name=name, batch_id=batch)
    session.add(site)
    session.flush()
    call = Outbox(leaf="hosting", key=f"site:{site.id}", path="/sites", body={"name": name}, batch_id=batch)
    session.add(call)
    session.flush()
    site.call_id = call.id
    # Without credit this fails, at the commit at the latest, and no call is made.
    session.get_one(Account, 1).credit = Account.credit - 1
    return site.id


def create(engine, name):
    with Session(engine) as session, session.begin():
        site = new_site(session, name)
    print(f"site {site} is requested")


def launch(engine, name, amount):
    batch = uuid4()
    with Session(engine) as session, session.begin():
        site = new_site(session, name, batch)
        session.add(Outbox(leaf="pay", key=f"site:{site}:charge", path="/charges",
                           body={"amount": int(amount)}, batch_id=batch))
        for run_when, say in (("batch_succeeded", "welcome"), ("batch_failed", "sorry")):
            session.add(Outbox(leaf="mail", key=f"site:{site}:{say}", path="/messages",
                               body={"say": say}, batch_id=batch, run_when=run_when))
    print(f"site {site} is requested, in batch {batch}")


def follow(engine):
    with Session(engine) as session, session.begin():
        if session.get(Reader, "sites") is None:
            session.add(Reader(name="sites"))
    while True:
        with Session(engine) as session, session.begin():
            read(session)
        time.sleep(1)


def read(session):
    reader = session.get_one(Reader, "sites", with_for_update=True)
    results = session.scalars(select(Result).where(Result.seq > reader.seq).order_by(Result.seq)).all()
    for result in results:
        take(session, result)
    # A lower seq can become visible after a higher one, as its transaction ends later. So what is younger than a
    # minute is read again, and to take a result twice changes nothing.
    settled = select(func.max(Result.seq)).where(
        Result.seq > reader.seq, Result.confirmed_at < func.now() - timedelta(minutes=1))
    reader.seq = session.scalar(settled) or reader.seq
    # What ends without a result has none to be read.
    session.execute(text("""
        UPDATE site SET status = 'failed'
          FROM site_outcome o WHERE o.site_id = site.id AND o.status = 'failed'
    """))


def take(session, result):
    key = re.fullmatch(r"site:(\d+)(:undo:\d+)?", result.key)
    if result.leaf != "hosting" or key is None:
        return
    site = session.get(Site, int(key[1]))
    if site is None:
        return
    if key[2] and site.status != "failed":
        site.status = "failed"
    elif not key[2] and site.status == "requested":
        # What a person has confirmed may have no body.
        site.status, site.remote_id = "live", (result.body or {}).get("id")
    else:
        return
    print(f"{site.name} is {site.status}", flush=True)


def main():
    commands = {"create": create, "launch": launch, "follow": follow}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    # The url that others know as postgres:// names the driver, too.
    url = re.sub("^postgres(ql)?://", "postgresql+psycopg://", os.environ["DATABASE_URL"])
    try:
        commands[sys.argv[1]](create_engine(url), *sys.argv[2:])
    except IntegrityError as error:
        sys.exit(f"nothing is requested: {error.orig.diag.message_primary}")


if __name__ == "__main__":
    main()
