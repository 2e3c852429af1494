# Carillon · test_jobs.py
# SPDX-License-Identifier: Apache-2.0

import json
import pickle
import unittest
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

from carillon import Fault, InvalidJob, Job, LaneFull, Refused, Unavailable


def faults(**fields: Any) -> str:
    """Returns the faults of a job, with an audience, a type and an id unless `fields` has them."""
    try:
        Job(**{"user": "ada", "type": "t", "id": "1", **fields})
    except InvalidJob as error:
        return str(error)
    return ""


class EncodingTests(unittest.TestCase):
    def test_strings_stay_and_other_values_become_json(self) -> None:
        job = Job(
            users=["ada", "ben"],
            except_=("ben",),
            type="payment_received",
            id="payment:9317",
            title="€ 40",
            data={"größe": [1, None]},
            badge=0,
            channels=["push"],
        )
        self.assertEqual(
            job.to_fields(),
            {
                "users": '["ada","ben"]',
                "except": '["ben"]',
                "type": "payment_received",
                "id": "payment:9317",
                "title": "€ 40",
                "data": '{"größe":[1,null]}',
                "badge": "0",
                "channels": '["push"]',
            },
        )

    def test_everyone_is_true(self) -> None:
        self.assertEqual(Job(all=True, type="t", id="1").to_fields(), {"all": "true", "type": "t", "id": "1"})

    def test_moments_have_their_offset(self) -> None:
        moment = datetime(2026, 11, 20, 10, 0, tzinfo=timezone(timedelta(hours=1)))
        job = Job(user="ada", type="t", id="1", deliver_at=moment, expires_at="2026-11-21T10:00:00Z")
        self.assertEqual(job.to_fields()["deliver_at"], "2026-11-20T10:00:00+01:00")
        self.assertEqual(job.to_json()["expires_at"], "2026-11-21T10:00:00Z")

    def test_the_json_for_http_keeps_values(self) -> None:
        job = Job(user="ada", type="t", id="1", data={"a": 1}, badge=3)
        self.assertEqual(job.to_json(), {"user": "ada", "type": "t", "id": "1", "data": {"a": 1}, "badge": 3})

    def test_any_mapping_and_sequence_is_json(self) -> None:
        job = Job(user="ada", type="t", id="1", data=MappingProxyType({"a": range(2)}))
        self.assertEqual(json.loads(job.to_fields()["data"]), {"a": [0, 1]})

    def test_events_need_no_id(self) -> None:
        self.assertEqual(
            Job(topic="rates", event="moved", args=[1, {"usd": 2}]).to_fields(),
            {"topic": "rates", "event": "moved", "args": '[1,{"usd":2}]'},
        )


class FaultTests(unittest.TestCase):
    def test_an_id_is_required(self) -> None:
        self.assertIn("id: is missing; derive it from the event", faults(id=None))

    def test_exactly_one_audience(self) -> None:
        self.assertEqual(faults(user=None), "user: give one of user, users, topic, all")
        self.assertEqual(faults(topic="news"), "user: give only one of user, topic")

    def test_a_type_or_an_event(self) -> None:
        self.assertEqual(faults(type=None), "type: is missing")
        self.assertEqual(faults(event="e"), "type: cannot be combined with event")

    def test_every_fault_is_named(self) -> None:
        self.assertEqual(faults(user="", title="x" * 256), "user: is empty; title: is longer than 255 characters")

    def test_texts(self) -> None:
        self.assertEqual(faults(user=42), "user: must be a string")
        self.assertEqual(faults(title="a\0"), "title: holds the character U+0000")
        self.assertEqual(faults(body="\ud83c"), "body: holds half of a surrogate pair")
        self.assertEqual(faults(title="🎉" * 255, body=""), "")

    def test_no_traceparent_costs_a_job(self) -> None:
        for text in ("", "00-1-2-3", "x" * 129):
            self.assertEqual(faults(traceparent=text), "")

    def test_choices(self) -> None:
        self.assertEqual(faults(lane="urgent"), "lane: must be one of critical, normal, bulk")
        for channels in (["sms"], [["push"]], []):
            self.assertEqual(faults(channels=channels), "channels: must be a list out of in_app, push, email")

    def test_lists_and_objects(self) -> None:
        self.assertEqual(faults(except_="ben"), "except: must be a list of 1 to 1000 strings")
        self.assertEqual(faults(user=None, users=["ada"] * 1001), "users: must be a list of 1 to 1000 strings")
        self.assertEqual(faults(user=None, users=["ada", 2]), "users[1]: must be a string")
        self.assertEqual(faults(data=[1]), "data: must be an object")
        self.assertEqual(faults(type=None, event="e", args="x"), "args: must be a list")
        self.assertEqual(faults(args=[1]), "args: is only for events")
        self.assertEqual(faults(data={"a": "x" * 16_384}), "data: is longer than 16384 bytes")
        self.assertEqual(faults(data={"a": {1}}), "data: is not JSON: set has no form in JSON")
        self.assertTrue(faults(vars={"a": float("nan")}).startswith("vars: is not JSON"))

    def test_numbers_and_moments(self) -> None:
        self.assertEqual(faults(badge=100_000), "badge: must be a whole number from 0 to 99999")
        self.assertEqual(faults(badge=True), "badge: must be a whole number from 0 to 99999")
        self.assertEqual(faults(badge=1.5), "badge: must be a whole number from 0 to 99999")
        self.assertIn("deliver_at: has no time zone", faults(deliver_at=datetime(2026, 11, 20)))
        moment = "2026-11-20T10:00:00Z"
        self.assertEqual(faults(deliver_at=moment, deliver_local="08:30"), "deliver_local: excludes deliver_at")

    def test_times_have_their_form(self) -> None:
        reason = "must be an RFC 3339 time such as 2026-11-20T10:00:00Z"
        for moment in ("2026", "2026-11-20", "2026-11-20T10:00:00", "2026-13-20T10:00:00Z", "2026-11-20T10:00:00+1:00"):
            for name in ("deliver_at", "expires_at", "keep_until"):
                self.assertEqual(faults(**{name: moment}), f"{name}: {reason}")
        for moment in ("2026-11-20T10:00:00Z", "2026-11-20 23:59:60.123456789-08:00", "2026-11-20t10:00:00z"):
            self.assertEqual(faults(deliver_at=moment), "")
        for time in ("8:30", "24:00", "08:30:00", "2027-01-01", "morning"):
            self.assertIn("deliver_local: must be a time of day such as 08:30", faults(deliver_local=time))
        for time in ("08:30", "2027-01-01T08:30"):
            self.assertEqual(faults(deliver_local=time), "")

    def test_addresses_lead_somewhere(self) -> None:
        reason = "url: must not be a javascript: URL; give a path, an https:// URL or a link into the app"
        self.assertEqual(faults(url="JavaScript:alert(1)"), reason)
        for url in ("/invoices/9?a=b:c", "https://example.com", "myapp://invoices/9", "data/9"):
            self.assertEqual(faults(url=url), "")
        for image in ("/a.png", "https://", "https://:80/a.png", "data:image/png;base64,"):
            self.assertIn("image: must be an https:// URL", faults(image=image))
        self.assertEqual(faults(image="HTTPS://example.com/a.png"), "")

    def test_an_event_has_few_fields(self) -> None:
        rest = {"except_": ["ben"], "org": "acme", "traceparent": "t", "args": [1]}
        self.assertEqual(faults(type=None, event="e", **rest), "")
        fault = "title: is not a field of an event; lane: is not a field of an event"
        self.assertEqual(faults(type=None, event="e", title="x", lane="bulk"), fault)

    def test_texts_within_json(self) -> None:
        for name in ("vars", "data", "platform"):
            for value in ({"a": [{"b": "x\0"}]}, {"a\0": 1}, {"a": "\\\0"}):
                self.assertEqual(faults(**{name: value}), f"{name}: holds the character U+0000")
            for value in ({"a": ["\ud83c"]}, {"\udf89": 1}):
                self.assertEqual(faults(**{name: value}), f"{name}: holds half of a surrogate pair")
            self.assertEqual(faults(**{name: {"a": "\\u0000", "b": "🎉"}}), "")
        self.assertEqual(faults(type=None, event="e", args=["\0"]), "args: holds the character U+0000")

    def test_a_name_that_is_no_field_is_refused(self) -> None:
        with self.assertRaises(TypeError):
            faults(tittle="x")


class ErrorTests(unittest.TestCase):
    def test_errors_survive_pickling(self) -> None:
        for error in (
            InvalidJob([Fault("title", "is bad")]),
            Refused(403, "no"),
            Unavailable("no answer", 5.0),
            LaneFull("carillon:jobs", 9, 1),
        ):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((str(copy), vars(copy)), (str(error), vars(error)))


if __name__ == "__main__":
    unittest.main()
