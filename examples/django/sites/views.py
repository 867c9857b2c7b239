import json
from uuid import uuid4

from django.db import IntegrityError, transaction
from django.db.models import F
from django.http import JsonResponse
from django.views.decorators.http import require_http_methods

from .models import Account, Outbox, Site


@require_http_methods(["GET", "POST"])
def sites(request):
    """GET lists the sites; POST requests one, {"name": …}, or with its charge as a batch, {"name": …, "amount": …}."""
    if request.method == "GET":
        found = Site.objects.select_related("call").order_by("id")
        return JsonResponse({"sites": [shown(site) for site in found]})
    wanted = json.loads(request.body)
    try:
        site = create(wanted["name"], wanted.get("amount"))
    except IntegrityError:
        return JsonResponse({"error": "the account has no credit"}, status=409)
    return JsonResponse(shown(site), status=202)


@transaction.atomic
def create(name, amount=None):
    """The site, its calls, and what the account pays for it: all of it, or nothing.

    The call is a row of this transaction. So there is no on_commit: nothing can be lost between the commit and it.
    """
    batch = None if amount is None else uuid4()
    site = Site.objects.create(name=name, batch_id=batch)
    key = f"site:{site.id}"
    call = Outbox.objects.create(leaf="hosting", key=key, path="/sites", body={"name": name}, batch_id=batch)
    site.call_id = call.id
    site.save()
    if batch:
        calls = [("pay", "charge", "/charges", {"amount": amount}, "ready")]
        for say, run_when in (("welcome", "batch_succeeded"), ("sorry", "batch_failed")):
            calls.append(("mail", say, "/messages", {"say": say}, run_when))
        Outbox.objects.bulk_create(
            Outbox(leaf=leaf, key=f"{key}:{what}", path=path, body=body, batch_id=batch, run_when=run_when)
            for leaf, what, path, body, run_when in calls)
    # Without credit this fails, and no call is made.
    Account.objects.filter(id=1).update(credit=F("credit") - 1)
    return site


def shown(site):
    # Where its call stands is a join away, also before anything has reacted.
    return {"id": site.id, "name": site.name, "status": site.status, "remote_id": site.remote_id,
            "call": site.call and site.call.state}
