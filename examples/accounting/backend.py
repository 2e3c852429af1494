# Carillon · backend.py
# SPDX-License-Identifier: Apache-2.0
"""The remaining `send_notification` of the back-end: Carillon stores, routes, emits, calls FCM."""

import json


def send_notification(redis, user_id, type, title, body, *, org_id=None, data=None, id=None):
    """Appends a job. The catalog sets severity and delivery; `id` makes a retry safe."""
    job = {"user": user_id, "type": type, "title": title, "body": body}
    if org_id:
        job["org"] = org_id
    if data:
        job["data"] = json.dumps(data)
    if id:
        job["id"] = id
    return redis.xadd("carillon:jobs", job)
