# Carillon · anchors.py
# SPDX-License-Identifier: Apache-2.0
"""Anchors of headings, as GitHub makes them."""

import unicodedata


def slug(text):
    """Returns the anchor of a heading's text, before duplicates get numbers."""
    kept = []
    for character in text.lower():
        if character == " ":
            kept.append("-")
        elif character in "-_" or unicodedata.category(character)[0] in "LMN":
            kept.append(character)
    return "".join(kept)


class Anchors:
    """The anchors of one page."""

    def __init__(self):
        self.taken = set()

    def claim(self, text):
        """Returns the anchor of a heading; repeats of a name end in `-1`, `-2` and so on."""
        name = slug(text.strip())
        unique, copy = name, 0
        while unique in self.taken:
            copy += 1
            unique = f"{name}-{copy}"
        self.taken.add(unique)
        return unique
