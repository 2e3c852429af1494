# Carillon · gateway.py
# SPDX-License-Identifier: Apache-2.0
"""The address, the token and the errors of a gateway."""

from __future__ import annotations

import json
import re
from urllib.parse import SplitResult, urlsplit

from carillon.errors import Fault, InvalidJob


def parse_address(url: str) -> SplitResult:
    """Returns the parts of a gateway's address.

    Raises:
        ValueError: `url` is not an http or https URL, or has a user, a query or a fragment.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url: must be the http or https address of a gateway")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("url: must not have a user, a query or a fragment; the token is an argument")
    return parts


def authorization(token: str) -> str:
    """Returns the header `Authorization` for a token, without the white space around it.

    Raises:
        ValueError: no header can hold the token. Checked here, because an HTTP library's error
            would show it.
    """
    token = (token or "").strip()
    if not re.fullmatch(r"[!-~]+", token):
        raise ValueError("token: must be printable ASCII without spaces")
    return f"Bearer {token}"


def parse_problem(answer: bytes | bytearray | None, first: int = 0) -> tuple[str, list[Fault]]:
    """Returns the detail and the faults of a problem document (RFC 9457).

    Adds `first`, the index of the batch's first job in the call, to the indexes in the faults. For
    any other document, such as a proxy's page, the detail is "no reason given".
    """
    try:
        problem = json.loads(answer or b"")
        faults = [Fault(_moved(fault["field"], first), fault["reason"]) for fault in problem.get("errors", [])]
        detail = str(InvalidJob(faults)) if faults else str(problem["detail"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return "no reason given", []
    return detail, faults


def _moved(field: str, by: int) -> str:
    match = re.fullmatch(r"\[(\d+)\](.*)", field, re.DOTALL)
    return f"[{int(match[1]) + by}]{match[2]}" if match else field
