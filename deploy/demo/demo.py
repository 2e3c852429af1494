#!/usr/bin/env python3
# Carillon · demo.py
# SPDX-License-Identifier: Apache-2.0
"""Sends three notifications and prints each step of their delivery.

Reads the variables of DATA/env; needs only Python.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request

from native_socket import NativeSocket

GATEWAY = os.environ["GATEWAY_URL"]
SANDBOX = os.environ["SANDBOX_URL"]
PROGRAMS = os.environ["CARILLON_BIN"]
PATIENCE = 20.0


def run(program, *arguments):
    """Runs one of Carillon's programs and returns the first line of its output."""
    done = subprocess.run([f"{PROGRAMS}/{program}", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[0]


def call(method, url, token=None, body=None):
    """Makes an HTTP call and returns the JSON of the answer."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=10) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def until(what, probe):
    """Polls the probe until it returns a value."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.02)
    raise TimeoutError(f"timed out after {PATIENCE:.0f} s: {what}")


def show(stage, text):
    print(f"      {stage:<7} {text}", flush=True)


def enqueue(user, kind, title, body):
    entry = run("dispatcher", "enqueue", "--user", user, "--type", kind, "--title", title, "--body", body)
    show("job", f"{entry}: {kind} for {user}, “{title}”")
    return int(entry.split("-")[0])


def stored(user, title, wanted):
    """Waits until the notification with `title` has a wanted status, and returns its row."""
    query = f"""SELECT json_build_object('id', id, 'version', version, 'status', status, 'via', sent_via)
        FROM carillon.notifications WHERE user_id = :'user' AND title = :'title' AND status IN {wanted!r}"""

    def probe():
        command = ["psql", "-XAtq", "-v", f"user={user}", "-v", f"title={title}", os.environ["DATABASE_URL"]]
        row = subprocess.run(command, input=query, check=True, capture_output=True, text=True).stdout
        return json.loads(row) if row.strip() else None
    return until(f"“{title}” is {' or '.join(wanted)}", probe)


def outcome(notification):
    return f"{notification['status']} by {notification['via']}"


def online(number):
    """Sends to a user with an open socket: the frame arrives, and the pong proves it."""
    title = f"Payment received {number}"
    print("    1 · Ada is online with a native socket", flush=True)
    token = run("gateway", "token", "--user", "ada")
    with NativeSocket(GATEWAY, token, PATIENCE) as socket:
        socket.wait_for("sync")
        appended = enqueue("ada", "payment_received", title, "€ 40 from Ben")
        frame, arrived = socket.wait_for("notification", lambda it: it["notification"]["title"] == title)
        pong = socket.wait_for_ping()
        notification = stored("ada", title, ("delivered", "read"))
        show("stored", f"{notification['id']}, version {frame['version']} of Ada's inbox")
        show("socket", f"frame received {max(0, arrived - appended):.0f} ms after the job was appended")
        show("proof", f"ping answered {max(0, pong - arrived):.1f} ms later: {outcome(notification)}")


def offline(number, user, name, place, device, kind, wanted_provider):
    """Sends to a user without a socket: a provider delivers a push."""
    title = f"{name}'s notice {number}"
    label = {"fcm": "FCM", "apns": "APNs"}[wanted_provider]
    print(f"    {place} · {name} is offline and has registered a phone for {label}", flush=True)
    token = run("gateway", "token", "--user", user)
    call("POST", f"{GATEWAY}/v1/devices", token, device)
    appended = enqueue(user, kind, title, "While you were away")

    def probe():
        mine = (it for it in call("GET", f"{SANDBOX}/received") if it["token"] == device["token"])
        return next((it for it in mine if title in json.dumps(it, ensure_ascii=False)), None)

    message = until(f"{label} gets it", probe)
    notification = stored(user, title, ("sent", "delivered"))
    show("stored", f"{notification['id']}, version {notification['version']} of {name}'s inbox")
    show("push", f"{label} got it {milliseconds(message['at']) - appended:.0f} ms after the job was appended")
    show("proof", f"{label} accepted it for {device['token'][:16]}…: {outcome(notification)}")


def milliseconds(moment):
    """Converts a timestamp of the sandbox to milliseconds since 1970."""
    if isinstance(moment, (int, float)):
        return moment * 1000 if moment < 1e11 else moment
    from datetime import datetime
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1000


def main():
    number = time.strftime("%H:%M:%S")
    online(number)
    offline(number, "ben", "Ben", 2, {"platform": "android", "token": "demo-phone-of-ben", "name": "Ben's phone"},
            "payment_received", "fcm")
    offline(number, "cleo", "Cleo", 3, {"platform": "ios", "token": "c1e0" * 16, "name": "Cleo's phone"},
            "invoice_overdue", "apns")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"demo: {error.stderr.strip() or error}")
    except (OSError, TimeoutError, KeyError) as error:
        sys.exit(f"demo: {error}")
