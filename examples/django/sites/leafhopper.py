"""Leafhopper's tables as models: copy this file, and import it from your models.py.

`leafhopper migrate` makes the tables, not Django. Of the outbox it has the columns that are written here: what is not
mapped is left to its default.
"""

from django.db import models


class Call(models.Model):
    """Where a call stands: a view, one row for each row of the outbox, with its id."""

    leaf = models.TextField()
    key = models.TextField()
    state = models.TextField()
    reason = models.TextField(null=True)
    attempts = models.IntegerField()
    last_status = models.IntegerField(null=True)
    last_error = models.TextField(null=True)

    class Meta:
        managed = False
        db_table = '"leafhopper"."call"'


class Outbox(models.Model):
    """A call to be made. INSERT is all that an app may do."""

    leaf = models.TextField()
    key = models.TextField()
    method = models.TextField(default="POST")
    path = models.TextField()
    body = models.JSONField(null=True)
    batch_id = models.UUIDField(null=True)
    run_when = models.TextField(default="ready")

    class Meta:
        managed = False
        db_table = '"leafhopper"."outbox"'


class Result(models.Model):
    """What the leaf has confirmed."""

    seq = models.BigIntegerField(primary_key=True)
    call_id = models.BigIntegerField(null=True)
    leaf = models.TextField()
    key = models.TextField()
    status = models.IntegerField()
    body = models.JSONField(null=True)
    confirmed_at = models.DateTimeField()
    undone_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = '"leafhopper"."result"'
