# Carillon · stack.py
# SPDX-License-Identifier: Apache-2.0
"""Shared by the examples: access to the stack of `deploy/up`, and output. Needs only Python."""

import json
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0
START = "CATALOG=examples/catalog.d deploy/up"
NEEDED = ("GATEWAY_URL", "REDIS_URL", "DATABASE_URL", "SANDBOX_URL", "CARILLON_BIN", "AUTH_JWT_SECRET", "CATALOG")

sys.path.insert(0, str(ROOT / "deploy" / "demo"))


class Failure(Exception):
    """A step of the example failed."""


class Refusal(Exception):
    """An HTTP call got an error status."""

    def __init__(self, call, status, body):
        super().__init__(f"{call}: {status} {json.dumps(body, ensure_ascii=False)}")
        self.status = status
        self.body = body


def step(text):
    print(f"\n{text}", flush=True)


def show(label, text):
    print(f"    {label:<9} {text}", flush=True)


def expect(what, condition):
    if not condition:
        raise Failure(what)


def until(what, probe, patience=PATIENCE):
    """Polls the probe until it returns a true value, and returns that value."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.05)
    raise Failure(f"timed out after {patience:.0f} s: {what}")


def http(method, url, body=None, headers=None):
    """Returns the status and the JSON of an answer, including error answers."""
    headers = {"Content-Type": "application/json"} | (headers or {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        text = error.read()
        try:
            return error.code, json.loads(text) if text else None
        except ValueError:
            return error.code, text.decode(errors="replace")


class Stack:
    """The running stack: its addresses, and calls that a team's own programs would make."""

    def __init__(self):
        self.variables = dict(os.environ)
        file = Path(os.environ.get("CARILLON_DATA", ROOT / ".local")) / "env"
        # Override variables that the shell loaded from an earlier start.
        if file.exists():
            self.variables |= read_environment(file)
        elif "GATEWAY_URL" not in self.variables:
            raise Failure(f"{file} is missing; start the stack first: {START}")
        if missing := [name for name in NEEDED if not self.variables.get(name)]:
            raise Failure(f"{', '.join(missing)}: missing in the environment and in {file}")
        catalog = self.variables["CATALOG"]
        if not Path(catalog, "reminders.yaml").exists():
            raise Failure(f"{catalog} is not the examples' catalog; start the stack as {START}")
        # The caller's proxy cannot reach the stack on this machine.
        os.environ["no_proxy"] = self.variables.get("no_proxy", "127.0.0.1")
        self.gateway = self.variables["GATEWAY_URL"]
        self.redis_url = self.variables["REDIS_URL"]
        self.database = self.variables["DATABASE_URL"]
        self.sandbox = self.variables["SANDBOX_URL"]
        #: Unique for this run, so that you can run an example again.
        self.run = format(time.time_ns() // 1_000_000, "x")
        self._first_push = self._sandbox("/received/count")["next"]

    def program(self, name, *arguments, input=None):
        """Runs one of Carillon's programs and returns its output."""
        path = f"{self.variables['CARILLON_BIN']}/{name}"
        done = subprocess.run([path, *arguments], input=input, env=self.variables, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"{name} {' '.join(arguments)} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def token(self, user, *options):
        """Makes the token that the team's own login would give the user."""
        return self.program("gateway", "token", "--user", user, *options)

    def call(self, method, path, body=None, *, token, scheme="Bearer", headers=None):
        """Calls the gateway and returns the JSON of the answer."""
        headers = {"Authorization": f"{scheme} {token}"} | (headers or {})
        status, answer = http(method, self.gateway + path, body, headers)
        if status >= 400:
            raise Refusal(f"{method} {path}", status, answer)
        return answer

    def is_scheduled(self, job, *, token):
        """Returns whether a job waits for its time; false until a dispatcher has stored it."""
        try:
            return self.call("GET", f"/v1/jobs/{job}", token=token)["scheduled"] == 1
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            return False

    def import_users(self, lines):
        """Imports users from JSON lines and returns the summary."""
        return self.program("gateway", "import", "-", input=lines)

    def psql(self, *files, database=None):
        """Runs SQL files and returns the rows that they select, one per line."""
        command = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1"]
        for file in files:
            command += ["-f", str(file)]
        done = subprocess.run([*command, database or self.database], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"psql: {done.stderr.strip()}")
        return done.stdout

    def sql(self, text, database=None):
        """Runs a statement and returns the rows that it selects, one per line."""
        command = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, database or self.database]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    @contextmanager
    def scratch_database(self, name):
        """Makes a database for the team on the stack's server, and drops it at the end."""
        name = f"example_{name}_{os.getpid()}"
        self.sql(f"CREATE DATABASE {name}")
        try:
            yield self.database.rsplit("/", 1)[0] + f"/{name}"
        finally:
            self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def pushes(self, token):
        """Returns the messages that the sandbox received in this run for a token or address."""
        received = self._sandbox(f"/received?since={self._first_push}")
        return [message for message in received if message["token"] == token]

    def _sandbox(self, path):
        return http("GET", self.sandbox + path)[1]


def read_environment(file):
    """Parses lines such as `export NAME='value'`."""
    variables = {}
    for line in file.read_text().splitlines():
        words = shlex.split(line)
        if len(words) == 2 and words[0] == "export":
            name, _, value = words[1].partition("=")
            variables[name] = value
    return variables


def title(push):
    """Returns the title that a push shows, for any provider."""
    payload = push["payload"]
    shown = payload.get("message", {}).get("notification") or payload.get("aps", {}).get("alert") or payload
    return shown.get("title") or shown.get("subject") or ""


def play(example):
    """Runs an example, and exits with 0 if every step succeeded."""
    try:
        example(Stack())
    except (Failure, Refusal, OSError, KeyError) as error:
        sys.exit(f"\nFAILED: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print("\ndone", flush=True)
