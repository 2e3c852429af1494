# Carillon · backend.py
# SPDX-License-Identifier: Apache-2.0
"""What is left of the back-end's `send_notification`: persisting, routing, emitting and FCM are Carillon's now."""

import json


def send_notification(redis, user_id, type, title, body, *, org_id=None, data=None, id=None):
    """Appends a job; severity, delivery and who wants it are the catalog's and the user's. `id` makes it repeatable."""
    job = {"user": user_id, "type": type, "title": title, "body": body}
    if org_id:
        job["org"] = org_id
    if data:
        job["data"] = json.dumps(data)
    if id:
        job["id"] = id
    return redis.xadd("carillon:jobs", job)
