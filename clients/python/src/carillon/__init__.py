# Carillon · __init__.py
# SPDX-License-Identifier: Apache-2.0
"""Sends notifications through Carillon, verifies its webhooks, and follows a user's inbox.

`Producer` and `AsyncProducer` append jobs to Redis; `HTTPProducer` posts them to the gateway.
`verify` checks a webhook request. `Inbox` is an asyncio client of a user's inbox.
"""

from carillon.client import Inbox
from carillon.errors import (
    CarillonError,
    Displaced,
    Fault,
    InboxError,
    InvalidJob,
    InvalidSignature,
    LaneFull,
    Refused,
    SignedOut,
    StaleSignature,
    Unavailable,
)
from carillon.http_producer import Accepted, HTTPProducer
from carillon.jobs import Job
from carillon.producer import AsyncProducer, Producer, part_of
from carillon.state import EphemeralEvent, Notification
from carillon.tokens import TokenProvider
from carillon.version import __version__
from carillon.webhooks import WebhookEvent, verify

__all__ = [
    "Accepted",
    "AsyncProducer",
    "CarillonError",
    "Displaced",
    "EphemeralEvent",
    "Fault",
    "HTTPProducer",
    "Inbox",
    "InboxError",
    "InvalidJob",
    "InvalidSignature",
    "Job",
    "LaneFull",
    "Notification",
    "Producer",
    "Refused",
    "SignedOut",
    "StaleSignature",
    "TokenProvider",
    "Unavailable",
    "WebhookEvent",
    "__version__",
    "part_of",
    "verify",
]
