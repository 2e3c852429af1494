#!/usr/bin/env python3
# Carillon · export.py
# SPDX-License-Identifier: Apache-2.0
"""Converts documents of the container `user_preferences`, one per line, for `gateway import`.

    SELECT * FROM c          (in the container; save the result as JSON lines)
    export.py preferences.jsonl | gateway import -
"""

import json
import sys


def record(document):
    """Converts a document to a user. Leaves out an unregistered token."""
    wishes = document.get("notification_preferences") or {}
    user = {
        "user_id": document["user_id"],
        # The app has no inbox, so refusing a type's pushes means refusing the type.
        "preferences": [{"type": name, "push": wish, "in_app": wish} for name, wish in wishes.items()],
        # Topics that readers can follow, such as "news/politics".
        "topics": document.get("topics") or [],
    }
    if document.get("notifications_enabled") and document.get("fcm_token"):
        user["devices"] = [{
            "platform": document.get("platform") or "ios", "provider": "fcm", "token": document["fcm_token"],
            # The same name as that of /device-token/register, so the next registration replaces it.
            "name": "device-token", "app_version": (document.get("app_version") or "")[:64] or None,
        }]
    return user


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as documents:
        for line in documents:
            if line.strip():
                print(json.dumps(record(json.loads(line)), ensure_ascii=False))
