#!/usr/bin/env python3
# Carillon · export.py
# SPDX-License-Identifier: Apache-2.0
"""Documents of the container `user_preferences`, a line each, become what `gateway import` takes.

    SELECT * FROM c          (in the container; as JSON lines)
    export.py preferences.jsonl | gateway import -
"""

import json
import sys


def record(document):
    """A user as Carillon takes it; a token that was unregistered is none."""
    wishes = document.get("notification_preferences") or {}
    user = {
        "user_id": document["user_id"],
        # The app has no inbox, so what is not pushed is not wanted at all.
        "preferences": [{"type": name, "push": wish, "in_app": wish} for name, wish in wishes.items()],
        # The channels of the catalog that readers may choose; "news/politics" and the like.
        "topics": document.get("topics") or [],
    }
    if document.get("notifications_enabled") and document.get("fcm_token"):
        user["devices"] = [{
            "platform": document.get("platform") or "ios", "provider": "fcm", "token": document["fcm_token"],
            # The name that /device-token/register gives it, so that the app's next registration takes its place.
            "name": "device-token", "app_version": document.get("app_version"),
        }]
    return user


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as documents:
        for line in documents:
            if line.strip():
                print(json.dumps(record(json.loads(line)), ensure_ascii=False))
