# Carillon · xadd_after.py
# SPDX-License-Identifier: Apache-2.0
#
# Runs after the block of docs/moving/socketio-fcm-hybrid.md: `send_notification` sends rows whose
# optional columns are null, and rows that have them.

import asyncio
import json
import os
from types import SimpleNamespace
from uuid import UUID

from redis.asyncio import Redis


async def check():
    global redis
    async with Redis.from_url(os.environ["REDIS_URL"]) as redis:
        await send_notification("ada", SimpleNamespace(
            event_id="payment:9416", org_id=None, type="payment_received", title="Title alone", body=None, data=None))
        await send_notification("ada", SimpleNamespace(
            event_id="payment:9417", org_id=UUID(int=1), type="payment_received", title="All columns",
            body="€ 40 from Ben", data={"invoice_id": "i9"}))


asyncio.run(check())
