# Carillon · test_producer.py
# SPDX-License-Identifier: Apache-2.0

import asyncio
import unittest
from typing import Any

from carillon import AsyncProducer, Job, LaneFull, Producer, part_of
from carillon.jobs import Lane

TAGS = "agbr mws akgg arf agsp eoi akve acd gxm aedt rvp aahy gio qn ceb aipc"


class PartTests(unittest.TestCase):
    def test_a_user_has_a_part(self) -> None:
        # FNV-1a of "a" and "foobar" are test vectors of the hash: 0xe40c292c and 0xbf9cf968.
        tags = TAGS.split()
        self.assertEqual(part_of("a", tags), "carillon:{gio}")
        self.assertEqual(part_of("foobar", tags), "carillon:{gxm}")
        self.assertEqual(part_of("zoë", tags), "carillon:{gio}")
        self.assertEqual(part_of("a", []), "carillon")


class FakeRedis:
    """Records commands, and answers as Redis does."""

    def __init__(self, tags: str | None = None) -> None:
        self.tags = None if tags is None else tags.encode()
        self.commands: list[tuple[Any, ...]] = []
        self.trips = 0
        self.length = 0

    def execute_command(self, *args: Any, **_: Any) -> Any:
        self.commands.append(args)
        if args[0] == "GET":
            return self.tags
        return b"1-0" if args[0] == "XADD" else self.length

    def pipeline(self, *, transaction: bool) -> "FakePipeline":
        assert not transaction
        return FakePipeline(self)


class FakePipeline:
    def __init__(self, redis: FakeRedis) -> None:
        self.redis = redis
        self.waiting: list[tuple[Any, ...]] = []

    def execute_command(self, *args: Any, **_: Any) -> "FakePipeline":
        self.waiting.append(args)
        return self

    def execute(self) -> list[Any]:
        self.redis.trips += 1
        return [self.redis.execute_command(*args) for args in self.waiting]


class FakeAsyncRedis(FakeRedis):
    async def execute_command(self, *args: Any, **options: Any) -> Any:
        return super().execute_command(*args, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        pipeline = FakePipeline(self)

        async def execute() -> list[Any]:
            self.trips += 1
            return [await self.execute_command(*args) for args in pipeline.waiting]

        pipeline.execute = execute  # type: ignore[method-assign, assignment]
        return pipeline


def jobs(count: int, lane: Lane | None = None) -> list[Job]:
    return [Job(user="a", type="t", id=str(number), lane=lane) for number in range(count)]


class ProducerTests(unittest.TestCase):
    def test_a_job_is_an_entry_of_its_lanes_stream(self) -> None:
        redis = FakeRedis()
        self.assertEqual(Producer(redis).send(Job(user="a", type="t", id="1")), "1-0")
        Producer(redis).send(Job(user="a", type="t", id="1", lane="critical"))
        self.assertEqual(redis.commands[0], ("XADD", "carillon:jobs", "*", "user", "a", "type", "t", "id", "1"))
        self.assertEqual(redis.commands[1][1], "carillon:jobs:critical")

    def test_many_jobs_go_in_batches(self) -> None:
        redis = FakeRedis()
        self.assertEqual(Producer(redis).send_many(iter(jobs(1_001, "bulk"))), 1_001)
        added = [command for command in redis.commands if command[0] == "XADD"]
        self.assertEqual([command[-3] for command in added], [str(number) for number in range(1_001)])
        self.assertEqual({command[1] for command in added}, {"carillon:jobs:bulk"})
        self.assertEqual(redis.trips, 3)

    def test_a_full_lane_stops_between_batches(self) -> None:
        redis = FakeRedis()
        redis.length = 2_000
        with self.assertRaises(LaneFull) as caught:
            Producer(redis, most_waiting=2_000).send_many(jobs(501))
        self.assertEqual(caught.exception.sent, 500)
        self.assertIn("carillon:jobs: holds 2,000 jobs; 500 of this call were sent", str(caught.exception))

    def test_a_full_lane_stops_the_next_call(self) -> None:
        redis = FakeRedis()
        redis.length = 2_000
        producer = Producer(redis, most_waiting=2_000)
        self.assertEqual(producer.send_many(jobs(10, "bulk")), 10)
        with self.assertRaises(LaneFull) as caught:
            producer.send_many(jobs(10, "bulk"))
        self.assertEqual((caught.exception.stream, caught.exception.sent), ("carillon:jobs:bulk", 0))
        self.assertEqual(producer.send_many(jobs(10, "critical")), 10)
        redis.length = 1_999
        for _ in range(2):
            self.assertEqual(producer.send_many(jobs(10, "bulk")), 10)
        looks = [command for command in redis.commands if command == ("XLEN", "carillon:jobs:bulk")]
        self.assertEqual(len(looks), 5, "looked before a batch although the lane had room")

    def test_a_spread_producer_uses_the_users_part(self) -> None:
        redis = FakeRedis(TAGS)
        producer = Producer(redis, spread=True)
        producer.send(Job(user="foobar", type="t", id="1", lane="bulk"))
        producer.send(Job(topic="news", type="t", id="foobar"))
        producer.send(Job(all=True, event="e"))
        streams = [command[1] for command in redis.commands]
        self.assertEqual(streams[:3], ["carillon:tags", "carillon:{gxm}:jobs:bulk", "carillon:{gxm}:jobs"])
        self.assertEqual(len(streams), 4, "the tags were read again")

    def test_without_parts_a_spread_producer_uses_plain_names(self) -> None:
        for tags in (None, ""):
            redis = FakeRedis(tags)
            Producer(redis, spread=True).send(Job(user="a", type="t", id="1"))
            self.assertEqual(redis.commands[1][1], "carillon:jobs")

    def test_asyncio_does_the_same(self) -> None:
        redis = FakeAsyncRedis(TAGS)
        redis.length = 63_000
        producer = AsyncProducer(redis, spread=True)

        async def main() -> None:
            self.assertEqual(await producer.send(Job(user="foobar", type="t", id="1")), "1-0")
            with self.assertRaises(LaneFull):
                await producer.send_many(jobs(501))
            with self.assertRaises(LaneFull):
                await producer.send_many(jobs(1))

        asyncio.run(main())
        self.assertEqual(redis.commands[1][1], "carillon:{gxm}:jobs")
        self.assertEqual(redis.trips, 1)


if __name__ == "__main__":
    unittest.main()
