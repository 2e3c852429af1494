# Carillon · moments.py
# SPDX-License-Identifier: Apache-2.0
"""Parses the times in frames, and the times in tokens."""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from typing import Any


def parse_moment(text: str) -> datetime:
    """Returns an RFC 3339 time.

    Raises:
        ValueError: `text` is not such a time.
    """
    # Python 3.10 does not know the suffix Z.
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def token_claims(token: str) -> dict[str, Any]:
    """Returns the claims of a JWT without verifying it; empty if the token is not a JWT."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (LookupError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def token_expiry(token: str) -> float | None:
    """Returns the `exp` of a JWT in seconds since 1970; None if it has none."""
    expiry = token_claims(token).get("exp")
    return float(expiry) if isinstance(expiry, (int, float)) else None


def token_life(token: str) -> float:
    """Returns the seconds from the `iat` to the `exp` of a JWT; infinity if it lacks one of them."""
    issued, expiry = token_claims(token).get("iat"), token_expiry(token)
    return expiry - issued if expiry is not None and isinstance(issued, (int, float)) else math.inf
