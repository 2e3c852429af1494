# Carillon · webhook_after.py
# SPDX-License-Identifier: Apache-2.0
#
# Runs after the blocks of docs/events.md: `verify` accepts a request and refuses a changed one.

import json
import os
import queue
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

requests = queue.Queue()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        requests.put((self.rfile.read(int(self.headers["Content-Length"])), self.headers["Carillon-Signature"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def call(path, body):
    headers = {"Authorization": f"Bearer {os.environ['SERVICE_TOKEN']}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["GATEWAY_URL"] + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
secret = call("/v1/webhooks", {"url": f"http://127.0.0.1:{server.server_port}/python"})["secret"]
for _ in range(120):
    # Dispatchers learn of a new webhook within seconds.
    call("/v1/jobs", {"user": "ada", "type": "payment_received", "title": "Told by webhook"})
    try:
        body, header = requests.get(timeout=0.5)
        break
    except queue.Empty:
        pass
assert verify(body, header, secret)
assert not verify(body + b" ", header, secret)
assert not verify(body, header, secret + "x")
assert not verify(body, header, secret, tolerance=-1)
for bad in (None, "", "x", "t=1", "v1=", "t=é,v1=é", header.replace("v1=", "v1=é")):
    assert verify(body, bad, secret) is False
print("verified by Python")
