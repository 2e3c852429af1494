# Carillon · socketio_conformance.py
# SPDX-License-Identifier: Apache-2.0
"""The official test suites of Engine.IO 4 and Socket.IO 5, ported, for the program `conformance`.

    socketio_conformance.py PORT INTERVAL TIMEOUT [CASE…]

Requires --ping-interval INTERVAL --ping-timeout TIMEOUT --max-payload 1000000 there. Short ones suit
the cases of the heartbeat, which run only by name; they would end the sessions of the others on a
busy machine. Prints a line with `ok` or `FAIL` for each case; the exit code is 1 if any failed.
"""
import base64
import http.client
import json
import socket as sockets
import sys
import time
import traceback

import requests
import websocket

PORT = int(sys.argv[1])
RS = "\x1e"
INTERVAL, TIMEOUT = int(sys.argv[2]) / 1000, int(sys.argv[3]) / 1000
# The longest wait in seconds; long, so that only a failure ends it on a busy machine.
PATIENCE = 200
cases = []


def case(function):
    cases.append(function)
    return function


def url(path, query="", scheme="http"):
    return f"{scheme}://127.0.0.1:{PORT}{path}?{query}"


class Polling:
    def __init__(self, path="/engine.io/"):
        self.path = path
        response = requests.get(url(path, "EIO=4&transport=polling"), timeout=PATIENCE)
        assert response.status_code == 200, response.status_code
        assert response.text[0] == "0"
        self.handshake = json.loads(response.text[1:])
        self.sid = self.handshake["sid"]
        self.query = f"EIO=4&transport=polling&sid={self.sid}"

    def get(self):
        response = requests.get(url(self.path, self.query), timeout=PATIENCE)
        response.encoding = "utf-8"
        return response

    def post(self, body, **options):
        if isinstance(body, str):
            body = body.encode()
        headers = {"content-type": "text/plain;charset=UTF-8"}
        headers.update(options.pop("headers", {}))
        return requests.post(url(self.path, self.query), data=body, headers=headers, timeout=PATIENCE, **options)

    def half_post(self):
        """Returns a POST without its last three bytes."""
        lines = [f"POST {self.path}?{self.query} HTTP/1.1", "Host: x", "Content-Type: text/plain", "Content-Length: 6"]
        return ("\r\n".join(lines) + "\r\n\r\n4he").encode()

    def take(self, count):
        """Returns the next packets; answers and skips pings."""
        packets = []
        while len(packets) < count:
            response = self.get()
            assert response.status_code == 200, response.text
            for packet in response.text.split(RS):
                if packet == "2":
                    self.post("3")
                else:
                    packets.append(packet)
        return packets


def connect(path="/engine.io/", sid=None):
    query = "EIO=4&transport=websocket" + (f"&sid={sid}" if sid else "")
    return websocket.create_connection(url(path, query, "ws"), timeout=PATIENCE, enable_multithread=True)


def take(socket):
    """Returns the next message; answers and skips pings."""
    while True:
        message = socket.recv()
        if message != "2":
            return message
        socket.send("3")


def expect_close(socket, within=PATIENCE):
    socket.settimeout(within)
    try:
        while True:
            opcode, data = socket.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big")
    except websocket.WebSocketConnectionClosedException:
        return None


def expect_refused(query):
    try:
        websocket.create_connection(url("/engine.io/", query, "ws"), timeout=PATIENCE).close()
    except websocket.WebSocketBadStatusException as error:
        assert error.status_code == 400, error.status_code
        return
    raise AssertionError("the upgrade was not refused")


def wait_until_read(client):
    """Waits until the server has read all that a socket sent, by the kernel's queues at both ends."""
    own = client.getsockname()[1]
    begun = time.time()
    while time.time() - begun < PATIENCE:
        queues = {}
        with open("/proc/net/tcp") as table:
            for line in list(table)[1:]:
                fields = line.split()
                local, remote = (int(field.split(":")[1], 16) for field in fields[1:3])
                if {local, remote} == {own, PORT}:
                    queues[local] = [int(size, 16) for size in fields[4].split(":")]
        if len(queues) == 2 and queues[own][0] == 0 and queues[PORT][1] == 0:
            return
        time.sleep(0.01)
    raise AssertionError("the server did not read the request")


def begin_get(client):
    """Sends a poll that the server has read on return; the connection's answer comes later."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=PATIENCE)
    connection.request("GET", f"{client.path}?{client.query}")
    wait_until_read(connection.sock)
    return connection


def finish_get(connection):
    """Returns the status and the text of the answer to such a poll."""
    response = connection.getresponse()
    return response.status, response.read().decode()


# Engine.IO: handshake


@case
def polling_handshake():
    handshake = Polling().handshake
    assert sorted(handshake) == ["maxPayload", "pingInterval", "pingTimeout", "sid", "upgrades"], handshake
    assert handshake["upgrades"] == ["websocket"]
    assert (handshake["pingInterval"], handshake["pingTimeout"], handshake["maxPayload"]) == tuple(
        map(int, sys.argv[2:4])
    ) + (1000000,)


@case
def polling_handshake_without_slash():
    assert requests.get(url("/engine.io", "EIO=4&transport=polling"), timeout=PATIENCE).status_code == 200


@case
def polling_handshake_refusals():
    for query in ["transport=polling", "EIO=abc&transport=polling", "EIO=4", "EIO=4&transport=abc"]:
        assert requests.get(url("/engine.io/", query), timeout=PATIENCE).status_code == 400, query
    for method in ["POST", "PUT", "DELETE"]:
        response = requests.request(method, url("/engine.io/", "EIO=4&transport=polling"), timeout=PATIENCE)
        assert response.status_code == 400, method


@case
def websocket_handshake():
    socket = connect()
    message = socket.recv()
    handshake = json.loads(message[1:])
    assert message[0] == "0" and handshake["upgrades"] == []
    assert sorted(handshake) == ["maxPayload", "pingInterval", "pingTimeout", "sid", "upgrades"]
    socket.close()


@case
def websocket_handshake_refusals():
    for query in ["transport=websocket", "EIO=abc&transport=websocket", "EIO=4", "EIO=4&transport=abc"]:
        expect_refused(query)


# Engine.IO: messages


@case
def polling_message():
    client = Polling()
    response = client.post("4hello")
    assert (response.status_code, response.text) == (200, "ok")
    assert client.take(1) == ["4hello"]


@case
def polling_messages_together():
    client = Polling()
    client.post(RS.join(["4test1", "4test2", "4test3 \u20ac \u2028"]))
    assert client.take(3) == ["4test1", "4test2", "4test3 \u20ac \u2028"]


@case
def polling_binary():
    client = Polling()
    client.post(RS.join(["4hello", "bAQIDBA=="]))
    assert client.take(2) == ["4hello", "bAQIDBA=="]


@case
def polling_bad_packet():
    client = Polling()
    assert client.post("abc").status_code == 400
    assert client.get().status_code == 400


@case
def polling_double_get():
    client = Polling()
    first = begin_get(client)
    assert client.get().status_code == 400
    assert finish_get(first) == (200, "1")
    assert client.get().status_code == 400


@case
def polling_double_post():
    client = Polling()
    with sockets.create_connection(("127.0.0.1", PORT), timeout=PATIENCE) as first:
        first.sendall(client.half_post())
        wait_until_read(first)
        assert client.post("4second").status_code == 400
        first.sendall(b"llo")
        assert first.recv(4096).startswith(b"HTTP/1.1 400 ")
    assert client.get().status_code == 400


@case
def polling_post_cancelled():
    client = Polling()
    waiting = begin_get(client)
    with sockets.create_connection(("127.0.0.1", PORT), timeout=PATIENCE) as first:
        first.sendall(client.half_post())
        wait_until_read(first)
    assert finish_get(waiting) == (200, "1")
    assert client.get().status_code == 400


@case
def polling_cancelled():
    client = Polling()
    begin_get(client).close()
    assert client.get().status_code == 400


@case
def polling_too_large():
    client = Polling()
    assert client.post("4" + "x" * 1000001).status_code == 413
    assert Polling().post(b"4x", headers={"content-type": "application/octet-stream"}).status_code == 400


@case
def polling_largest():
    text = "4" + "x" * 999999
    client = Polling()
    assert client.post(text).status_code == 200
    assert client.take(1) == [text]


@case
def websocket_text_and_binary():
    socket = connect()
    socket.recv()
    socket.send("4hello")
    assert take(socket) == "4hello"
    socket.send_binary(b"\x01\x02\x03\x04")
    assert take(socket) == b"\x01\x02\x03\x04"
    socket.close()


@case
def websocket_bad_packet():
    socket = connect()
    socket.recv()
    socket.send("abc")
    expect_close(socket)


# Engine.IO: heartbeat


@case
def polling_heartbeat():
    client = Polling()
    for _ in range(3):
        assert client.get().text == "2"
        assert client.post("3").status_code == 200


@case
def polling_ping_timeout():
    client = Polling()
    time.sleep(INTERVAL + TIMEOUT + 2)
    assert client.get().status_code == 400


@case
def websocket_heartbeat():
    socket = connect()
    socket.recv()
    for _ in range(3):
        assert socket.recv() == "2"
        socket.send("3")
    socket.close()


@case
def websocket_ping_timeout():
    begun = time.time()
    socket = connect()
    expect_close(socket)
    # There is no upper bound, because a busy machine notices later.
    assert INTERVAL + TIMEOUT - 0.05 <= time.time() - begun


# Engine.IO: close and upgrade


@case
def polling_close():
    client = Polling()
    waiting = begin_get(client)
    assert client.post("1").status_code == 200
    assert finish_get(waiting) == (200, "6")
    assert client.get().status_code == 400


@case
def websocket_close():
    socket = connect()
    socket.recv()
    socket.send("1")
    expect_close(socket)


@case
def upgrade():
    client = Polling()
    socket = connect(sid=client.sid)
    socket.send("2probe")
    assert socket.recv() == "3probe"
    socket.send("5")
    socket.send("4hello")
    assert take(socket) == "4hello"
    socket.close()


@case
def upgrade_releases_poll():
    client = Polling()
    waiting = begin_get(client)
    socket = connect(sid=client.sid)
    socket.send("2probe")
    assert socket.recv() == "3probe"
    assert finish_get(waiting) == (200, "6")
    socket.send("5")
    socket.close()


@case
def upgrade_keeps_messages():
    client = Polling()
    socket = connect(sid=client.sid)
    socket.send("2probe")
    assert socket.recv() == "3probe"
    client.post("4waits")
    socket.send("5")
    assert take(socket) == "4waits"
    socket.close()


@case
def after_upgrade_polling_is_refused():
    client = Polling()
    socket = connect(sid=client.sid)
    socket.send("2probe")
    socket.recv()
    socket.send("5")
    socket.send("4a")
    assert take(socket) == "4a"
    assert client.get().status_code == 400
    assert client.post("4x").status_code == 400
    socket.send("4b")
    assert take(socket) == "4b"
    socket.close()


@case
def after_upgrade_second_websocket_is_closed():
    client = Polling()
    socket = connect(sid=client.sid)
    socket.send("2probe")
    socket.recv()
    socket.send("5")
    second = connect(sid=client.sid)
    expect_close(second)
    socket.send("4b")
    assert take(socket) == "4b"
    socket.close()


@case
def unknown_session():
    assert requests.get(url("/engine.io/", "EIO=4&transport=polling&sid=abc"), timeout=PATIENCE).status_code == 400
    expect_refused("EIO=4&transport=websocket&sid=abc")


@case
def preflight():
    headers = {
        "Origin": "https://a.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-a",
    }
    response = requests.options(url("/engine.io/", "EIO=4&transport=polling"), headers=headers, timeout=PATIENCE)
    assert response.status_code == 204
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-origin"] == "https://a.example"
    assert response.headers["access-control-allow-credentials"] == "true"
    assert response.headers["access-control-allow-headers"] == "x-a"


@case
def websocket_of_another_origin():
    address = url("/engine.io/", "EIO=4&transport=websocket", "ws")
    socket = websocket.create_connection(address, timeout=PATIENCE, origin="https://a.example")
    assert socket.recv()[0] == "0"
    socket.close()


# Socket.IO


def join(payload="", namespace=""):
    socket = connect("/socket.io/")
    socket.recv()
    socket.send("40" + namespace + payload)
    reply = take(socket)
    assert reply.startswith("40" + namespace + "{"), reply
    assert "sid" in json.loads(reply[len("40" + namespace) :])
    assert take(socket).startswith("42" + namespace + '["auth",')
    return socket


@case
def connect_to_main_namespace():
    socket = connect("/socket.io/")
    socket.recv()
    socket.send('40{"token":"123"}')
    assert sorted(json.loads(take(socket)[2:])) == ["sid"]
    assert take(socket) == '42["auth",{"token":"123"}]'
    socket.close()


@case
def connect_without_payload():
    socket = connect("/socket.io/")
    socket.recv()
    socket.send("40")
    take(socket)
    assert take(socket) == '42["auth",{}]'
    socket.close()


@case
def connect_to_custom_namespace():
    socket = connect("/socket.io/")
    socket.recv()
    socket.send('40/custom,{"token":"abc"}')
    assert take(socket).startswith('40/custom,{"sid":')
    assert take(socket) == '42/custom,["auth",{"token":"abc"}]'
    socket.close()


@case
def connect_to_unknown_namespace():
    socket = connect("/socket.io/")
    socket.recv()
    socket.send("40/random")
    assert take(socket) == '44/random,{"message":"Invalid namespace"}'
    socket.close()


@case
def connect_never():
    socket = connect("/socket.io/")
    socket.recv()
    begun = time.time()
    try:
        while time.time() - begun < PATIENCE:
            take(socket)
    except (websocket.WebSocketConnectionClosedException, BrokenPipeError, ConnectionResetError):
        return
    raise AssertionError("the connection was not closed")


@case
def nonsense_closes():
    for text in ["4abc", "42{}", "42abc[\"message\"]", "42[\"connect\"]", "40", "43[]", "44{}", "451-[]", "4"]:
        socket = join()
        socket.send(text)
        expect_close(socket)
    socket = join()
    socket.send_binary(b"abc")
    expect_close(socket)


@case
def event_before_connect_closes():
    socket = connect("/socket.io/")
    socket.recv()
    socket.send('42["message"]')
    expect_close(socket)


@case
def client_disconnect():
    socket = connect("/socket.io/")
    socket.recv()
    socket.send("40")
    take(socket), take(socket)
    socket.send("40/custom")
    take(socket), take(socket)
    socket.send("41")
    socket.send('42/custom,["message","still"]')
    assert take(socket) == '42/custom,["message-back","still"]'
    socket.send("40")
    assert take(socket).startswith("40{")
    socket.close()


@case
def engine_close():
    socket = join()
    socket.send("1")
    expect_close(socket)


@case
def message_plain():
    socket = join()
    socket.send('42["message",1,"2",{"3":[true]}]')
    assert take(socket) == '42["message-back",1,"2",{"3":[true]}]'
    socket.close()


@case
def message_binary():
    socket = join()
    holes = '{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}'
    socket.send('452-["message",' + holes + "]")
    socket.send_binary(b"\x01\x02\x03")
    socket.send_binary(b"\x04\x05\x06")
    assert take(socket) == '452-["message-back",' + holes + "]"
    assert (take(socket), take(socket)) == (b"\x01\x02\x03", b"\x04\x05\x06")
    socket.close()


@case
def acknowledgement_plain():
    socket = join()
    socket.send('42456["message-with-ack",1,"2",{"3":[false]}]')
    assert take(socket) == '43456[1,"2",{"3":[false]}]'
    socket.close()


@case
def acknowledgement_binary():
    socket = join()
    holes = '{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}'
    socket.send('452-789["message-with-ack",' + holes + "]")
    socket.send_binary(b"\x01\x02\x03")
    socket.send_binary(b"\x04\x05\x06")
    assert take(socket) == "462-789[" + holes + "]"
    assert (take(socket), take(socket)) == (b"\x01\x02\x03", b"\x04\x05\x06")
    socket.close()


@case
def acknowledgement_of_the_client():
    """The server awaits none, so it ignores them."""
    socket = join()
    socket.send('430["answer",{"3":null}]')
    socket.send('461-1[{"_placeholder":true,"num":0}]')
    socket.send_binary(b"\x01\x02\x03")
    socket.send('42["message","still"]')
    assert take(socket) == '42["message-back","still"]'
    socket.close()


@case
def binary_over_polling():
    client = Polling("/socket.io/")
    client.post("40")
    client.take(2)
    client.post(RS.join(['451-["message",{"_placeholder":true,"num":0}]', "b" + base64.b64encode(b"abc").decode()]))
    packets = client.take(2)
    assert packets == ['451-["message-back",{"_placeholder":true,"num":0}]', "bYWJj"], packets


@case
def many_messages_over_polling():
    client = Polling("/socket.io/")
    client.post("40")
    client.take(2)
    client.post(RS.join(f'42["message",{number}]' for number in range(50)))
    packets = []
    while len(packets) < 50:
        answer = client.get().text.split(RS)
        assert len(answer) <= 16
        packets += [packet for packet in answer if packet != "2"]
        if "2" in answer:
            client.post("3")
    assert packets == [f'42["message-back",{number}]' for number in range(50)]


@case
def recovery():
    """Requires --recovery, which adds an argument to the events of the other Socket.IO cases."""
    socket = connect("/socket.io/")
    socket.recv()
    socket.send("40")
    granted = json.loads(take(socket)[2:])
    offset = json.loads(take(socket)[2:])[-1]
    socket.send('42["lose","missed"]')
    expect_close(socket)
    again = connect("/socket.io/")
    again.recv()
    again.send("40" + json.dumps({"pid": granted["pid"], "offset": offset}))
    event = json.loads(take(again)[2:])
    assert event[:2] == ["message-back", "missed"] and len(event) == 3, event
    assert json.loads(take(again)[2:]) == granted
    again.send("40/custom," + json.dumps({"pid": "nobody", "offset": offset}))
    assert take(again).startswith("40/custom,")
    again.close()


failures = 0
heartbeat = [polling_heartbeat, polling_ping_timeout, websocket_heartbeat, websocket_ping_timeout, connect_never]
names = sys.argv[4:] or [function.__name__ for function in cases if function not in [recovery, *heartbeat]]
cases = [function for function in cases if function.__name__ in names]
for function in cases:
    try:
        function()
        print("ok", function.__name__, flush=True)
    except Exception:
        failures += 1
        print("FAIL", function.__name__, traceback.format_exc().strip().splitlines()[-1], flush=True)
        traceback.print_exc()
print("passed" if failures == 0 else "failed", len(cases) - failures, "of", len(cases), flush=True)
sys.exit(1 if failures else 0)
