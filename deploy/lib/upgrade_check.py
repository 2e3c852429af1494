#!/usr/bin/env python3
# Carillon · upgrade_check.py
# SPDX-License-Identifier: Apache-2.0
"""The steps of deploy/lib/upgrade-test that send notifications and compare inboxes.

Reads the variables of the stack's `env`; needs only Python. The steps share a file with the answers
of the previous release and the titles that must arrive once.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))

from native_socket import NativeSocket  # noqa: E402

PATIENCE = 60.0
# Longer than the stop of the previous release and the start of the new one.
LATER = timedelta(seconds=30)
# Fields of a notification that change on their own between two reads.
UNSTABLE = {"status", "updated_at"}


class Failure(Exception):
    """The new release does not do what the previous one did."""


def say(text):
    print(f"    {text}", flush=True)


def until(what, probe, patience=PATIENCE):
    """Polls the probe until it returns a true value, and returns that value."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.05)
    raise Failure(f"timed out after {patience:.0f} s: {what}")


class Stack:
    """A release's programs and the gateway to ask."""

    def __init__(self, programs=None, gateway=None):
        self.programs = programs or os.environ["CARILLON_BIN"]
        self.gateway = gateway or os.environ["GATEWAY_URL"]

    def run(self, program, *arguments):
        done = subprocess.run([f"{self.programs}/{program}", *arguments], capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{program} {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def token(self, user):
        return self.run("gateway", "token", "--user", user)

    def call(self, user, method, path, body=None):
        """Makes a user's call and returns the JSON of the answer."""
        headers = {"Authorization": f"Bearer {self.token(user)}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.gateway + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def enqueue(self, title, user="ada", kind="invoice_created", **fields):
        more = [f"--field={name}={value}" for name, value in fields.items()]
        self.run("dispatcher", "enqueue", "--user", user, "--type", kind, "--title", title, *more)

    def inbox(self, user="ada"):
        """Returns the user's whole inbox, newest first."""
        found, cursor = [], ""
        while True:
            page = self.call(user, "GET", f"/v1/notifications?limit=100{cursor}")
            found += page["notifications"]
            if not page["next_cursor"]:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def titles(self, user="ada"):
        return [it["title"] for it in self.inbox(user)]

    def state(self):
        """Returns the data that an upgrade must keep."""
        return {
            "ada's inbox": self.inbox(),
            "ada's archive": self.call("ada", "GET", "/v1/notifications/archived?limit=100")["notifications"],
            "ben's inbox": self.inbox("ben"),
            "ben's devices": self.call("ben", "GET", "/v1/devices")["devices"],
            "ada's settings": [self.call("ada", "GET", "/v1/settings")],
        }

    def await_titles(self, titles, user="ada"):
        """Waits until all titles are in the inbox, each of them once."""
        def missing():
            present = self.titles(user)
            return [title for title in titles if title not in present]

        try:
            until("all notifications arrive", lambda: not missing())
        except Failure:
            raise Failure(f"these never arrived: {', '.join(missing())}") from None
        present = self.titles(user)
        if twice := sorted({title for title in titles if present.count(title) > 1}):
            raise Failure(f"these arrived twice: {', '.join(twice)}")


def push_arrived(title):
    with urllib.request.urlopen(f"{os.environ['SANDBOX_URL']}/received", timeout=10) as answer:
        return any(title in json.dumps(it, ensure_ascii=False) for it in json.load(answer))


def fill(file):
    """Gives the previous release its data, and leaves work that only the new release can finish."""
    stack = Stack()
    stack.call("ada", "PUT", "/v1/settings", {"zone": "Europe/Zurich", "locale": "en", "email": "ada@example.com"})
    stack.call("ben", "POST", "/v1/devices", {"platform": "android", "token": "upgrade-phone", "name": "Phone"})
    titles = [f"Invoice {number}" for number in range(1, 41)]
    for title in titles:
        stack.enqueue(title)
    stack.enqueue("Paid before the upgrade", user="ben", kind="payment_received")
    stack.await_titles(titles)
    until("the push arrives", lambda: push_arrived("Paid before the upgrade"))
    until("the push is recorded", lambda: stack.inbox("ben"))
    newest = stack.inbox()
    stack.call("ada", "POST", "/v1/notifications/read", {"ids": [it["id"] for it in newest[:15]]})
    stack.call("ada", "POST", f"/v1/notifications/{newest[20]['id']}/archive")
    stack.call("ada", "DELETE", f"/v1/notifications/{newest[21]['id']}")
    state = stack.state()
    due = datetime.now(timezone.utc) + LATER
    stack.enqueue("Scheduled before the upgrade", deliver_at=due.strftime("%Y-%m-%dT%H:%M:%SZ"))
    late = ["Scheduled before the upgrade"]
    # The last jobs are still in the stream, or half done, when the programs stop.
    for number in range(1, 11):
        late.append(f"Last moment {number}")
        stack.enqueue(late[-1])
    file.write_text(json.dumps({"state": state, "late": late, "due": due.timestamp()}))
    count = len(state["ada's inbox"])
    say(f"{count} notifications in Ada's inbox, {len(late)} jobs still on their way")


def difference(old, new, place):
    """Returns the differences of a new answer from the old one; a release may add fields."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            if name not in UNSTABLE and (found := difference(value, new.get(name), f"{place}.{name}")):
                return found
        return None
    return None if old == new else f"{place}: was {json.dumps(old)}, is {json.dumps(new)}"


def compare(stack, kept):
    """Checks that everything of the kept state is still there, in the same order."""
    state = stack.state()
    for name, old in kept.items():
        known = {it.get("id") for it in old}
        new = [it for it in state[name] if it.get("id") in known]
        if len(new) != len(old):
            raise Failure(f"{name}: {len(old)} entries before, {len(new)} of them now")
        for number, (one, other) in enumerate(zip(old, new)):
            if found := difference(one, other, f"{name}, entry {number + 1}"):
                raise Failure(found)


def check(file):
    """Checks that a release has the data of the other one, finishes its work, and delivers."""
    stack = Stack()
    kept = json.loads(file.read_text())
    compare(stack, kept["state"])
    say("the inboxes, archive, devices and settings are the same")
    is_early = time.time() < kept["due"]
    stack.await_titles(kept["late"])
    say("jobs from before the stop arrived once" + (", one of them scheduled for after the start" if is_early else ""))
    deliver(stack, stack, f"sent {datetime.now():%H:%M:%S.%f}")


def deliver(sender, receiver, name):
    """Sends one notification to a socket of the receiver's gateway, and one push."""
    socket_title, push_title = f"To a socket, {name}", f"To a phone, {name}"
    with NativeSocket(receiver.gateway, receiver.token("ada"), PATIENCE) as socket:
        socket.wait_for("sync")
        sender.enqueue(socket_title, kind="payment_received")
        socket.wait_for("notification", lambda it: it["notification"]["title"] == socket_title)
        socket.wait_for_ping()
    sender.enqueue(push_title, user="ben", kind="payment_received")
    until(f"the push arrives: {push_title}", lambda: push_arrived(push_title))
    receiver.await_titles([socket_title])
    receiver.await_titles([push_title], user="ben")
    say(f"a new notification reached a socket, another one a phone ({name})")


def jobs_of(metrics):
    """Returns how many jobs a dispatcher has finished."""
    with urllib.request.urlopen(f"{metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("carillon_jobs_finished"))


def mixed(file, old_programs, old_gateway, old_metrics, new_dispatcher):
    """Checks a gateway and a dispatcher of the old release that run with those of the new one."""
    kept = json.loads(file.read_text())
    new, old = Stack(), Stack(old_programs, old_gateway)
    compare(old, kept["state"])
    deliver(new, old, "by the new release, at the old gateway")
    deliver(old, new, "by the old release, at the new gateway")
    titles = [f"Mixed {number}" for number in range(1, 31)]
    before = jobs_of(old_metrics)
    # Suspend the new dispatcher, so that the old one must read the jobs from both releases.
    os.kill(new_dispatcher, 19)
    try:
        for number, title in enumerate(titles):
            (old if number % 2 else new).enqueue(title)
        until("the old dispatcher takes jobs", lambda: jobs_of(old_metrics) > before)
    finally:
        os.kill(new_dispatcher, 18)
    for stack in (new, old):
        stack.await_titles(titles)
    say(f"both dispatchers share the jobs; the old one finished {jobs_of(old_metrics) - before:.0f} of {len(titles)}")
    if [it["id"] for it in new.inbox()] != [it["id"] for it in old.inbox()]:
        raise Failure("the two gateways list different inboxes")
    say("both gateways list the same inbox")


STEPS = {"fill": fill, "check": check, "mixed": mixed}

if __name__ == "__main__":
    try:
        step, path, *others = sys.argv[1:]
        STEPS[step](Path(path), *(int(it) if it.isdigit() else it for it in others))
    except (OSError, Failure, ConnectionError, KeyError) as error:
        sys.exit(f"upgrade-test: {error}")
