# Carillon · test_webhooks.py
# SPDX-License-Identifier: Apache-2.0

import hashlib
import hmac
import unittest
from datetime import datetime, timezone
from email.message import Message
from typing import Any

from carillon import InvalidSignature, StaleSignature, verify

# The codes are those of `openssl dgst -sha256 -hmac`.
SECRET, NEXT_SECRET = "s3cret-of-the-webhook", "the-next-secret"
CODE = "16bcb5464847deead5242d3b4e18a18892f3d71dcd0b15919536ed8b52175961"
NEXT_CODE = "2149c2a79b2fd3a4b2a672d38e77a82aaa3e7b694a1a2f6c651c75ca6ed25553"
BODY = (
    b'{"events":[{"id":"1795000000000-0","event":"failed","at":"2026-11-20T10:00:00.000Z","notification":"n1",'
    b'"job":"order-17","user":"u42","org":null,"colour":"red"}]}'
)
MOMENT = 1_795_000_000
HEADER = f"t={MOMENT},v1={CODE}"


class WebhookTests(unittest.TestCase):
    def refusal(self, body: bytes = BODY, headers: Any = HEADER, secrets: Any = SECRET, now: float = MOMENT) -> str:
        """Returns the error, which must not hold a secret."""
        with self.assertRaises(InvalidSignature) as caught:
            verify(body, headers, secrets, now=now)
        text = str(caught.exception)
        for secret in (SECRET, CODE):
            self.assertNotIn(secret, text)
        return text

    def test_a_valid_request_has_events(self) -> None:
        (event,) = verify(BODY, HEADER, SECRET, now=MOMENT)
        self.assertEqual((event.event, event.job, event.user, event.org), ("failed", "order-17", "u42", None))
        self.assertEqual(event.at, datetime(2026, 11, 20, 10, tzinfo=timezone.utc))

    def test_the_header_may_be_among_all_headers(self) -> None:
        self.assertEqual(len(verify(BODY, {"Host": "a", "carillon-signature": HEADER}, SECRET, now=MOMENT)), 1)

    def test_headers_need_not_be_a_mapping(self) -> None:
        # Those of `http.server`; Flask's are no mapping either.
        headers = Message()
        headers["Host"] = "a"
        self.assertEqual(self.refusal(headers=headers), "Carillon-Signature: is missing")
        headers["Carillon-Signature"] = HEADER
        self.assertEqual(len(verify(BODY, headers, SECRET, now=MOMENT)), 1)

    def test_any_of_several_secrets_fits(self) -> None:
        self.assertEqual(len(verify(BODY, HEADER, [NEXT_SECRET, SECRET], now=MOMENT)), 1)

    def test_any_of_several_signatures_fits(self) -> None:
        header = f"t={MOMENT}, v1={CODE}, v1={NEXT_CODE}, v2=abc"
        for secret in (SECRET, NEXT_SECRET):
            self.assertEqual(len(verify(BODY, header, secret, now=MOMENT)), 1)

    def test_a_changed_request_is_refused(self) -> None:
        wrong = "Carillon-Signature: does not fit the body and the secret"
        self.assertEqual(self.refusal(body=BODY + b" "), wrong)
        self.assertEqual(self.refusal(secrets="another"), wrong)
        self.assertEqual(self.refusal(headers=f"t={MOMENT + 1},v1={CODE}"), wrong)
        self.assertEqual(self.refusal(headers=f"t={MOMENT},v1={CODE[:-1]}"), wrong)
        self.assertEqual(self.refusal(headers=f"t={MOMENT},v1=é"), wrong)

    def test_a_header_in_another_form_is_refused(self) -> None:
        for header in (
            "",
            f"v1={CODE}",
            f"t={MOMENT}",
            f"{HEADER},t={MOMENT}",
            f"t=-1,v1={CODE}",
            f"t=١,v1={CODE}",
        ):
            self.assertTrue(self.refusal(headers=header).startswith("Carillon-Signature: "))
        self.assertEqual(self.refusal(headers=None), "Carillon-Signature: is missing")
        self.assertEqual(self.refusal(headers={"Host": "a"}), "Carillon-Signature: is missing")

    def test_an_old_or_future_request_is_stale(self) -> None:
        for now in (MOMENT + 301, MOMENT - 301):
            with self.assertRaises(StaleSignature):
                verify(BODY, HEADER, SECRET, now=now)
        self.assertEqual(len(verify(BODY, HEADER, SECRET, now=MOMENT + 300)), 1)
        self.assertEqual(len(verify(BODY, HEADER, SECRET, now=MOMENT + 900, tolerance=1_000)), 1)

    def test_a_signed_body_without_events_is_refused(self) -> None:
        for body in (b"", b"[]", b"{}", b'{"events":[{}]}', b'{"events":[1]}', b'{"events":[{"at":"x"}]}'):
            code = hmac.new(SECRET.encode(), f"{MOMENT}.".encode() + body, hashlib.sha256).hexdigest()
            text = self.refusal(body=body, headers=f"t={MOMENT},v1={code}")
            self.assertEqual(text, "body: is signed, and does not hold events")

    def test_mistakes_of_the_caller_are_named(self) -> None:
        with self.assertRaises(TypeError):
            verify(BODY.decode(), HEADER, SECRET)  # type: ignore[arg-type]
        for secrets in ("", [], [SECRET, ""]):
            with self.assertRaises(ValueError):
                verify(BODY, HEADER, secrets)


if __name__ == "__main__":
    unittest.main()
