# Carillon · errors.py
# SPDX-License-Identifier: Apache-2.0
"""The errors of this package. None of them holds a token or a secret.

`Exception` gets the arguments unchanged, so that errors can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class CarillonError(Exception):
    """The base of all errors of this package."""


class Fault(NamedTuple):
    """A field of a job that breaks a rule."""

    field: str
    reason: str


class InvalidJob(CarillonError, ValueError):
    """A job that Carillon would refuse. `faults` lists every field at fault."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "; ".join(f"{fault.field}: {fault.reason}" for fault in self.faults)


class Refused(CarillonError):
    """An answer of the gateway that a retry does not change, such as 401 or 403."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(status, detail)

    def __str__(self) -> str:
        return f"the gateway answered {self.status}: {self.detail}"


class Unavailable(CarillonError):
    """The gateway has not confirmed the jobs. Send them again later: their ids prevent duplicates.

    `retry_after` is the wait in seconds that the gateway asked for, or None.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(reason, retry_after)

    def __str__(self) -> str:
        return self.reason


class LaneFull(CarillonError):
    """A stream is too long for more jobs. `sent` counts the jobs that the call appended."""

    def __init__(self, stream: str, length: int, sent: int) -> None:
        self.stream = stream
        self.length = length
        self.sent = sent
        super().__init__(stream, length, sent)

    def __str__(self) -> str:
        return f"{self.stream}: holds {self.length:,} jobs; {self.sent:,} of this call were sent, send the rest later"


class InvalidSignature(CarillonError):
    """A webhook request that does not come from Carillon, or was changed."""


class StaleSignature(InvalidSignature):
    """A webhook request with a valid signature whose time is too far from now: a replay."""


class InboxError(CarillonError):
    """The gateway refused a message of an inbox, or the inbox is closed."""


class SignedOut(InboxError):
    """The inbox ended: the gateway refused the token, or its provider has none."""


class Displaced(InboxError):
    """The inbox ended: the user has too many newer connections (4409)."""
