# Carillon · test_http_producer.py
# SPDX-License-Identifier: Apache-2.0

import json
import socket
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from typing import Any

from carillon import HTTPProducer, InvalidJob, Job, Refused, Unavailable

TOKEN = "header.claims.signature"
JOB = Job(user="ada", type="t", id="1")

# A status, headers and JSON, or None to hang up.
Answer = tuple[int, dict[str, str], Any] | None
ACCEPTED: Answer = (202, {}, {"id": "1", "lane": "normal", "entry": "1-0"})


def problem(status: int, headers: dict[str, str] | None = None, **members: Any) -> Answer:
    return (status, headers or {}, {"status": status, "detail": "some reason", **members})


class Gateway:
    """Answers requests from a list, and records them."""

    def __init__(self, answers: list[Answer]) -> None:
        self.requests: list[tuple[str, str | None, Any]] = []
        self.connections: list[socket.socket] = []
        # Connections that get no answer.
        self.silent: list[socket.socket] = []
        # All requests wait here until the last one has come.
        self.meeting = threading.Barrier(1)
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                gateway.connections.append(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                gateway.requests.append((self.path, self.headers["Authorization"], json.loads(body)))
                if self.connection in gateway.silent:
                    return
                gateway.meeting.wait()
                answer = answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, content = answer
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class HTTPProducerTests(unittest.TestCase):
    def producer(
        self, answers: list[Answer], token: str | Callable[[], str] = TOKEN, **options: Any
    ) -> tuple[Gateway, HTTPProducer, list[float]]:
        """Returns a gateway, a producer for it, and a list of the producer's waits."""
        gateway = Gateway(answers)
        self.addCleanup(gateway.close)
        producer = HTTPProducer(gateway.url, token, **options)
        self.addCleanup(producer.close)
        waits: list[float] = []
        producer._sleep = waits.append
        producer._random = lambda: 1.0
        return gateway, producer, waits

    def test_a_job_is_posted_with_the_token(self) -> None:
        gateway, producer, _ = self.producer([ACCEPTED], token=lambda: f"{TOKEN}\n")
        accepted = producer.send(JOB)
        self.assertEqual((accepted.id, accepted.lane, accepted.entry), ("1", "normal", "1-0"))
        self.assertEqual(gateway.requests, [("/v1/jobs", f"Bearer {TOKEN}", {"user": "ada", "type": "t", "id": "1"})])

    def test_requests_share_a_connection(self) -> None:
        gateway, producer, _ = self.producer([ACCEPTED, ACCEPTED])
        producer.send(JOB)
        producer.send(JOB)
        self.assertEqual(len(gateway.connections), 1)

    def test_a_connection_that_was_closed_while_idle_is_replaced_at_once(self) -> None:
        gateway, producer, waits = self.producer([ACCEPTED, None, ACCEPTED])
        producer.send(JOB)
        producer.send(JOB)
        self.assertEqual((len(gateway.connections), waits), (2, []))

    def test_idle_connections_that_are_all_dead_cost_one_try(self) -> None:
        gateway, producer, waits = self.producer([ACCEPTED] * 6, timeout=2.0)
        gateway.meeting = threading.Barrier(5)
        with ThreadPoolExecutor(5) as threads:
            list(threads.map(producer.send, [JOB] * 5))
        gateway.meeting = threading.Barrier(1)
        gateway.silent = list(gateway.connections)
        producer.send(JOB)
        self.assertEqual((len(gateway.connections), waits), (6, [0.2]))

    def test_it_waits_as_long_as_the_gateway_says(self) -> None:
        date = formatdate(time() + 800, usegmt=True)
        answers = [
            problem(503, {"Retry-After": "5"}),
            problem(429, {"Retry-After": date}),
            problem(503, {"Retry-After": "soon"}),
            ACCEPTED,
        ]
        _, producer, waits = self.producer(answers, longest_wait=1_000.0)
        producer.send(JOB)
        self.assertAlmostEqual(waits[0], 5.2)
        self.assertTrue(600 < waits[1] < 801, waits)
        self.assertAlmostEqual(waits[2], 0.8)

    def test_backoff_grows_up_to_the_longest_wait(self) -> None:
        page: Answer = (502, {"Connection": "close"}, b"<html>")
        _, producer, waits = self.producer([None, page, page, None, ACCEPTED], longest_wait=1.0)
        producer.send(JOB)
        self.assertEqual(waits, [0.2, 0.4, 0.8, 1.0])

    def test_it_gives_up_after_the_last_try(self) -> None:
        gateway, producer, waits = self.producer([problem(503)] * 3, tries=3)
        with self.assertRaises(Unavailable) as caught:
            producer.send(JOB)
        self.assertEqual(str(caught.exception), f"{gateway.url} answered 503: some reason")
        self.assertEqual((len(gateway.requests), len(waits)), (3, 2))

    def test_it_gives_up_if_the_wait_is_too_long(self) -> None:
        _, producer, waits = self.producer([problem(503, {"Retry-After": "3600"})])
        with self.assertRaises(Unavailable) as caught:
            producer.send(JOB)
        self.assertEqual((caught.exception.retry_after, waits), (3600.0, []))

    def test_no_gateway_is_unavailable(self) -> None:
        gateway, producer, waits = self.producer([])
        gateway.close()
        with self.assertRaises(Unavailable) as caught:
            producer.send(JOB)
        self.assertIn(f"no answer from {gateway.url}", str(caught.exception))
        self.assertEqual(len(waits), 4)

    def test_faults_are_not_retried(self) -> None:
        faults = [{"field": "type", "reason": "is not in the catalog"}, {"field": "url", "reason": "is bad"}]
        gateway, producer, _ = self.producer([problem(422, errors=faults)])
        with self.assertRaises(InvalidJob) as caught:
            producer.send(JOB)
        self.assertEqual(str(caught.exception), "type: is not in the catalog; url: is bad")
        self.assertEqual(caught.exception.faults[1].field, "url")
        self.assertEqual(len(gateway.requests), 1)

    def test_refusals_are_not_retried(self) -> None:
        for status in (301, 400, 401, 403, 413, 500):
            _, producer, waits = self.producer([problem(status)])
            with self.assertRaises(Refused) as caught:
                producer.send(JOB)
            self.assertEqual(str(caught.exception), f"the gateway answered {status}: some reason")
            self.assertEqual((caught.exception.status, waits), (status, []))

    def test_many_jobs_go_in_batches(self) -> None:
        gateway, producer, _ = self.producer([(202, {}, {"jobs": []})] * 2)
        self.assertEqual(producer.send_many(JOB for _ in range(501)), 501)
        self.assertEqual([len(body) for _, _, body in gateway.requests], [500, 1])

    def test_a_batch_has_at_most_eight_megabytes(self) -> None:
        big = Job(user="ada", type="t", id="1", data={"a": "x" * 16_000}, vars={"a": "x" * 16_000})
        gateway, producer, _ = self.producer([(202, {}, {"jobs": []})] * 2)
        self.assertEqual(producer.send_many([big] * 300), 300)
        self.assertEqual([len(body) for _, _, body in gateway.requests], [261, 39])

    def test_a_batch_has_at_most_400_000_values(self) -> None:
        many = Job(users=[str(1_000_000 + number) for number in range(1_000)], type="t", id="1")
        gateway, producer, _ = self.producer([(202, {}, {"jobs": []})] * 2)
        self.assertEqual(producer.send_many([many] * 500), 500)
        self.assertEqual([len(body) for _, _, body in gateway.requests], [398, 102])

    def test_a_fault_has_the_index_in_all_jobs(self) -> None:
        faults = [{"field": "[3].platform.fcm", "reason": "is bad"}]
        _, producer, _ = self.producer([(202, {}, {"jobs": []}), problem(422, errors=faults)])
        with self.assertRaises(InvalidJob) as caught:
            producer.send_many([JOB] * 600)
        self.assertEqual(str(caught.exception), "[503].platform.fcm: is bad")

    def test_a_refusal_has_the_index_in_all_jobs(self) -> None:
        faults = [{"field": "[3].type", "reason": "is not allowed"}]
        _, producer, _ = self.producer([(202, {}, {"jobs": []}), problem(403, errors=faults)])
        with self.assertRaises(Refused) as caught:
            producer.send_many([JOB] * 600)
        self.assertEqual(caught.exception.detail, "[503].type: is not allowed")

    def test_an_error_of_the_token_function_passes_through(self) -> None:
        def provide() -> str:
            raise ConnectionError("the login server is away")

        gateway, producer, waits = self.producer([], token=provide)
        with self.assertRaisesRegex(ConnectionError, "the login server is away"):
            producer.send(JOB)
        self.assertEqual((gateway.requests, waits), ([], []))

    def test_the_path_of_the_address_stays(self) -> None:
        gateway, _, _ = self.producer([ACCEPTED])
        with HTTPProducer(gateway.url + "/carillon/", TOKEN) as producer:
            producer.send(JOB)
        self.assertEqual(gateway.requests[0][0], "/carillon/v1/jobs")

    def test_an_address_has_no_secrets(self) -> None:
        for url in ("notify.example.com", "ftp://a", "https://user:pass@a", "https://a?token=x"):
            with self.assertRaises(ValueError):
                HTTPProducer(url, TOKEN)

    def test_a_missing_token_is_named(self) -> None:
        missing: Any = None
        with self.assertRaisesRegex(ValueError, "^token: must be text"):
            HTTPProducer("https://notify.example.com", missing)
        _, producer, _ = self.producer([], token=lambda: missing)
        with self.assertRaisesRegex(ValueError, "^token: must be printable"):
            producer.send(JOB)

    def test_no_text_holds_the_token(self) -> None:
        secret = "se\ncret"
        _, producer, _ = self.producer([], token=secret)
        with self.assertRaises(ValueError) as caught:
            producer.send(JOB)
        self.assertNotIn("cret", str(caught.exception) + repr(producer))


if __name__ == "__main__":
    unittest.main()
