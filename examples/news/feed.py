# Carillon · feed.py
# SPDX-License-Identifier: Apache-2.0
"""The feed of stories that the monitor reads. In the app this is a database query."""

import json
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Feed:
    """Serves stories over HTTP on a free port."""

    def __init__(self):
        self.stories = {}
        self.looks = 0
        # The status with which the feed refuses to change a story, by id.
        self.refusals = {}
        self._lock = threading.Lock()
        feed = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                with feed._lock:
                    feed.looks += 1
                    body = json.dumps({"stories": list(feed.stories.values())}).encode()
                self._answer(200, body)

            def do_PATCH(self):
                change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                id = self.path.rsplit("/", 1)[1]
                if id in feed.refusals:
                    return self._answer(feed.refusals[id], b"{}")
                with feed._lock:
                    feed.stories[id] |= change
                self._answer(200, b"{}")

            def _answer(self, status, body):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/stories"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def breaks(self, id, title, category, ago=timedelta(), first_seen=None):
        first_seen = first_seen or (datetime.now(timezone.utc) - ago).isoformat()
        with self._lock:
            self.stories[id] = {"id": id, "title": title, "category": category, "status": "BREAKING",
                                "first_seen": first_seen, "source_count": 5, "revision": 0, "update": ""}

    def develops(self, id, update):
        with self._lock:
            story = self.stories[id]
            self.stories[id] = story | {"revision": story["revision"] + 1, "update": update}

    def spreads(self, id):
        with self._lock:
            self.stories[id]["source_count"] += 1

    def close(self):
        self._server.shutdown()
