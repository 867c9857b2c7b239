from django.db import models

from .leafhopper import Call, Outbox, Result  # noqa: F401 (so that Django finds them)


class Account(models.Model):
    credit = models.PositiveIntegerField()

    class Meta:
        db_table = "account"


class Site(models.Model):
    name = models.TextField()
    status = models.TextField(default="requested")
    # No constraint: the call is a view.
    call = models.ForeignKey(Call, models.DO_NOTHING, null=True, db_constraint=False)
    batch_id = models.UUIDField(null=True)
    remote_id = models.TextField(null=True)

    class Meta:
        db_table = "site"


class Reader(models.Model):
    """How far a program that polls the results has come."""

    name = models.TextField(primary_key=True)
    seq = models.BigIntegerField(default=0)

    class Meta:
        db_table = "reader"
