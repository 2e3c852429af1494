# Carillon · search_index.py
# SPDX-License-Identifier: Apache-2.0
"""Writes the search index as a script, because pages opened from files cannot fetch."""

import json


def index(groups):
    """Returns the index: pages with their sections, in the order of the navigation.

    A page is [address, title, group, sections]; a section is [anchor, heading, prose, code].
    """
    pages = []
    for group in groups:
        for page in group.pages:
            sections = [
                [section.anchor, section.heading, section.prose, section.code.strip()] for section in page.sections
            ]
            pages.append([page.target, page.title, group.name, sections])
    return pages


def script(groups):
    """Returns the script that hands the index to `search.js`."""
    text = json.dumps(index(groups), ensure_ascii=False, separators=(",", ":"))
    return f"globalThis.carillonPages = {text};\n"
