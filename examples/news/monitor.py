#!/usr/bin/env python3
# Carillon · monitor.py
# SPDX-License-Identifier: Apache-2.0
"""The breaking-news monitor: polls the feed and sends a notification for each new story.

    monitor.py --feed https://stories.example.com/stories [--every 300] [--verify-after 1800]

Reads GATEWAY_URL and SERVICE_TOKEN from the environment. Make a token with these rights only, and
restart the monitor with a new one before it expires. If the gateway refuses the token, the monitor
exits with 1.

    gateway token --user news-monitor --scope service --types breaking_news,developing_stories \
        --audiences topic,all --ttl 30d

The feed answers GET with `{"stories": [{"id", "title", "category", "status", "first_seen",
"revision", "update"}]}`, and takes `PATCH /{id} {"status": "VERIFIED"}`. The monitor keeps no state.
A story always has the same job id, so each reader gets it once, even if the monitor crashes or two
monitors run. The title and the category of a story must not change.
"""

import argparse
import http.client
import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timezone

LONGEST_TITLE = 150


class Monitor:
    def __init__(self, feed, gateway, token, verify_after):
        self.feed = feed.rstrip("/")
        self.gateway = gateway.rstrip("/")
        self.token = token
        self.verify_after = verify_after

    def look(self, now):
        """Sends every unverified story, and verifies old ones after sending them."""
        stories = self._call("GET", self.feed)["stories"]
        for story in stories:
            try:
                if story["status"] == "BREAKING":
                    self._handle(story, now)
            except (ValueError, KeyError, TypeError) as error:
                # This story is invalid; go on, so that the others do not wait.
                say(f"skipped {story}: {type(error).__name__}: {error}")
            except urllib.error.HTTPError as error:
                # Only this story failed, unless a server is busy or the token was refused.
                if self.is_refused(error) or error.code == 429 or error.code >= 500:
                    raise
                say(describe(error))

    def is_refused(self, error):
        """Whether the gateway refuses the token."""
        return error.code in (401, 403) and error.url.startswith(f"{self.gateway}/v1/")

    def _handle(self, story, now):
        age = (now - datetime.fromisoformat(story["first_seen"])).total_seconds()
        # Send old stories too: the monitor may have been down when they were new.
        self._send(self.breaking(story))
        if story.get("revision"):
            self._send(self.developing(story))
        if age >= self.verify_after:
            self._verify(story)

    def _verify(self, story):
        try:
            self._call("PATCH", f"{self.feed}/{quoted(story['id'])}", {"status": "VERIFIED"})
            say(f"verified {story['id']}")
        except (OSError, http.client.HTTPException) as error:
            # The story was sent. The next poll tries to mark it again, and the other stories do not
            # wait.
            say(f"could not verify {story['id']}; the next poll retries: {error}")

    @staticmethod
    def breaking(story):
        """A job for everyone who wants breaking news, once per story.

        Leaves out fields that change, such as the number of sources: a repeated id with other
        content becomes a dead letter.
        """
        return {
            "id": f"story:{story['id']}", "all": True, "type": "breaking_news",
            "vars": {"title": story["title"][:LONGEST_TITLE]},
            "entity_type": "story", "entity_id": story["id"],
            "data": {"storyId": story["id"], "category": story["category"], "priority": "breaking"},
            # Wakes the iOS app through FCM, as `content_available` did.
            "platform": {"fcm": {"apns": {"payload": {"aps": {"content-available": 1}}}}},
        }

    @staticmethod
    def developing(story):
        """A job for followers of the category; each revision replaces the previous one."""
        return {
            "id": f"story:{story['id']}:{story['revision']}", "topic": f"news/{story['category']}",
            "type": "developing_stories", "title": story["title"][:LONGEST_TITLE], "body": story["update"],
            "collapse_key": f"story:{story['id']}", "entity_type": "story", "entity_id": story["id"],
            "data": {"storyId": story["id"], "category": story["category"]},
        }

    def _send(self, job):
        answer = self._call("POST", f"{self.gateway}/v1/jobs", job, self.token)
        say(f"sent {answer['id']}")

    def _call(self, method, url, body=None, token=None):
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            text = answer.read()
            return json.loads(text) if text else None


def say(text):
    print(text, flush=True)


def quoted(id):
    return urllib.parse.quote(str(id), safe="")


def seconds(text):
    """Returns the seconds of a Retry-After header; 0 for a date, because the next poll retries."""
    return float(text) if text and text.isdecimal() else 0.0


def describe(error):
    return f"{error.url}: {error.code} {error.read(500).decode(errors='replace')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--feed", required=True)
    parser.add_argument("--every", type=float, default=300, help="seconds between two polls")
    parser.add_argument("--verify-after", type=float, default=1800, help="seconds until a story becomes VERIFIED")
    options = parser.parse_args()
    monitor = Monitor(options.feed, os.environ["GATEWAY_URL"], os.environ["SERVICE_TOKEN"], options.verify_after)

    is_over = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: is_over.set())
    wait = 0.0
    while not is_over.wait(wait):
        wait = options.every
        try:
            monitor.look(datetime.now(timezone.utc))
        except urllib.error.HTTPError as error:
            if monitor.is_refused(error):
                return f"{describe(error)}; start the monitor again with a new token"
            # The next poll retries, after the Retry-After of a 429 or 503.
            say(describe(error))
            wait = max(wait, seconds(error.headers.get("Retry-After")))
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            say(f"poll failed; the next one retries: {type(error).__name__}: {error}")
    say("monitor stopped")


if __name__ == "__main__":
    sys.exit(main())
