# Carillon · page_after.py
# SPDX-License-Identifier: Apache-2.0
#
# Runs after the blocks of docs/clients/python.md: `main` prints a notification and marks it read.

import asyncio
import builtins
import uuid

from carillon import HTTPProducer, Job

is_open = asyncio.Event()


def print(*values):
    """Reports that `main` has its inbox, whose count is the first text that it prints."""
    builtins.print(*values)
    is_open.set()


async def check():
    job = Job(
        user="ada", type="payment_received", id=f"python:{uuid.uuid4()}", title="Payment received", body="€ 40 from Ben")
    async with Inbox(os.environ["GATEWAY_URL"], fetch_token) as other:
        reader = asyncio.create_task(main())
        await is_open.wait()
        with HTTPProducer(os.environ["GATEWAY_URL"], os.environ["SERVICE_TOKEN"]) as producer:
            await asyncio.to_thread(producer.send, job)
        while not any(item.read_at for item in other.items):
            await other.changed()
        reader.cancel()


asyncio.run(asyncio.wait_for(check(), 120))
