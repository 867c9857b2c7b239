import re
import time
from datetime import timedelta

from django.core.management.base import BaseCommand
from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from sites.models import Reader, Result, Site


class Command(BaseCommand):
    help = "Polls leafhopper.result by seq, and marks sites as live or failed, until Ctrl-C."

    def handle(self, *args, **options):
        Reader.objects.get_or_create(name="sites")
        while True:
            self.read()
            time.sleep(1)

    @transaction.atomic
    def read(self):
        reader = Reader.objects.select_for_update().get(name="sites")
        results = Result.objects.filter(seq__gt=reader.seq)
        for result in results.filter(leaf="hosting").order_by("seq"):
            self.take(result)
        # A lower seq can become visible after a higher one, as its transaction ends later. So what is younger than a
        # minute is read again, and to take a result twice changes nothing.
        settled = results.filter(confirmed_at__lt=Now() - timedelta(minutes=1)).aggregate(seq=Max("seq"))["seq"]
        if settled:
            reader.seq = settled
            reader.save()
        # What ends without a result has none to be read.
        ended = Site.objects.filter(status="requested", call__state__in=("failed", "cancelled", "expired"))
        ended.update(status="failed")

    def take(self, result):
        key = re.fullmatch(r"site:(\d+)(:undo:\d+)?", result.key)
        if not key:
            return
        site = Site.objects.filter(id=key[1])
        if key[2]:
            changed = site.exclude(status="failed").update(status="failed")
        else:
            # What a person has confirmed may have no body.
            remote = (result.body or {}).get("id")
            changed = site.filter(status="requested").update(status="live", remote_id=remote)
        if changed:
            self.stdout.write(f"site {key[1]} is {site.get().status}")
