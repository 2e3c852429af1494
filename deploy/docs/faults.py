# Carillon · faults.py
# SPDX-License-Identifier: Apache-2.0
"""Collects the faults of pages, so that one run reports all of them."""


class Faults:
    """The faults found so far, each with the place to repair."""

    def __init__(self):
        self.found = []

    def add(self, place, text):
        """Adds a fault. `place` is a path from the root, with a line if one is known."""
        message = f"{place}: {text}"
        if message not in self.found:
            self.found.append(message)

    def __bool__(self):
        return bool(self.found)

    def __iter__(self):
        return iter(self.found)
