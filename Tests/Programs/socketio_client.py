# Carillon · socketio_client.py
# SPDX-License-Identifier: Apache-2.0
"""A python-socketio client that prints one line for each thing that happens.

    event <name> <argument>         an event from the server
    ack <name> <answer>             the acknowledgement of an event from --emit
    connected <transport> | refused <data> | disconnected

Each --emit name=json emits an event, one after the other, after the first sync. In the JSON, $0, $1
and so on stand for the ids of that sync's notifications. Runs until it is killed.
"""
import argparse
import json
import threading
import time

import socketio

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--token", default="")
parser.add_argument("--fresh-token", default="", help="token for reconnects")
parser.add_argument("--transports", default="polling,websocket")
parser.add_argument("--emit", action="append", default=[])
parser.add_argument("--handshake-token", default="")
options = parser.parse_args()

output = threading.Lock()


def say(*words):
    with output:
        print(*words, flush=True)


client = socketio.Client(reconnection_delay=0.1, reconnection_delay_max=0.5, randomization_factor=0.1)
synced = threading.Event()
ids = []


@client.on("*")
def any_event(event, *arguments):
    say("event", event, json.dumps(arguments[0] if arguments else None))
    if event == "sync" and not synced.is_set():
        ids.extend(item["id"] for item in arguments[0]["notifications"])
        synced.set()


@client.event
def connect():
    say("connected", client.transport())


@client.event
def connect_error(data):
    say("refused", json.dumps(data))


@client.event
def disconnect(reason=None):
    say("disconnected", reason)


tokens = [options.token]
if options.fresh_token:
    tokens.append(options.fresh_token)


def credentials():
    return {"token": tokens.pop(0) if len(tokens) > 1 else tokens[0]}


auth = credentials if options.token else None
headers = {"Authorization": "Bearer " + options.handshake_token} if options.handshake_token else {}
try:
    client.connect(
        options.url, auth=auth, headers=headers, transports=options.transports.split(","), wait=True, wait_timeout=200
    )
except socketio.exceptions.ConnectionError as error:
    say("failed", error)
    raise SystemExit(0)
synced.wait(200)
for word in options.emit:
    name, _, argument = word.partition("=")
    for index, identifier in enumerate(ids):
        argument = argument.replace(f"${index}", identifier)
    try:
        answer = client.call(name, json.loads(argument) if argument else None, timeout=200)
        say("ack", name, json.dumps(answer))
    except socketio.exceptions.TimeoutError:
        say("timeout", name)
say("ready", client.transport())
while True:
    time.sleep(60)
