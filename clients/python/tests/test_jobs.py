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

    def test_an_empty_audience_is_left_out(self) -> None:
        job = Job(user="ada", users=[], topic="", except_=[], type="t", id="1", event="", title="")
        self.assertEqual(job.to_fields(), {"user": "ada", "type": "t", "id": "1", "title": ""})

    def test_events_need_no_id(self) -> None:
        self.assertEqual(
            Job(topic="rates", event="moved", args=[1, {"usd": 2}]).to_fields(),
            {"topic": "rates", "event": "moved", "args": '[1,{"usd":2}]'},
        )


class FaultTests(unittest.TestCase):
    def test_an_id_is_required(self) -> None:
        for none in (None, ""):
            self.assertEqual(
                faults(id=none), "id: is missing; derive it from the event that the job reports: payment:9317"
            )

    def test_exactly_one_audience(self) -> None:
        reason = "user: give exactly one of user, users, topic, all"
        self.assertEqual(faults(user=None), reason)
        self.assertEqual(faults(topic="news"), reason)
        self.assertEqual(faults(user="", users=[], topic="", all=False), reason)

    def test_a_type_or_an_event(self) -> None:
        self.assertEqual(faults(type=None), "type: is missing")
        self.assertEqual(faults(event="e"), "type: cannot be combined with event")

    def test_every_fault_is_named(self) -> None:
        fault = "type: is missing; title: holds the character U+0000; data: holds half of a surrogate pair"
        self.assertEqual(faults(type=None, title="\0", data={"a": "\ud83c"}), fault)

    def test_a_lane_has_a_stream(self) -> None:
        self.assertEqual(faults(lane="urgent"), "lane: must be one of critical, normal, bulk")

    def test_a_list_of_users_has_a_limit(self) -> None:
        reason = "users: must be at most 1000 users; send to a topic, or several jobs"
        self.assertEqual(faults(user=None, users=["ada"] * 1_001), reason)
        self.assertEqual(faults(user=None, users=["ada"] * 1_000), "")

    def test_texts(self) -> None:
        self.assertEqual(faults(title="a\0"), "title: holds the character U+0000")
        self.assertEqual(faults(body="\ud83c"), "body: holds half of a surrogate pair")
        self.assertEqual(faults(except_=["ben", "\udf89"]), "except: holds half of a surrogate pair")
        self.assertEqual(faults(title="🎉 \\u0000", body=""), "")

    def test_texts_within_json(self) -> None:
        for name in ("vars", "data", "platform"):
            for value in ({"a": [{"b": "x\0"}]}, {"a\0": 1}, {"a": "\\\0"}):
                self.assertEqual(faults(**{name: value}), f"{name}: holds the character U+0000")
            for value in ({"a": ["\ud83c"]}, {"\udf89": 1}):
                self.assertEqual(faults(**{name: value}), f"{name}: holds half of a surrogate pair")
            self.assertEqual(faults(**{name: {"a": "\\u0000", "b": "🎉"}}), "")
        self.assertEqual(faults(type=None, event="e", args=["\0"]), "args: holds the character U+0000")

    def test_values_are_json(self) -> None:
        self.assertEqual(faults(data={"a": {1}}), "data: is not JSON: set has no form in JSON")
        self.assertTrue(faults(vars={"a": float("nan")}).startswith("vars: is not JSON"))

    def test_a_time_has_a_zone(self) -> None:
        reason = "has no time zone; use datetime.now(timezone.utc) or the like"
        for name in ("deliver_at", "expires_at", "keep_until"):
            self.assertEqual(faults(**{name: datetime(2026, 11, 20)}), f"{name}: {reason}")

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
