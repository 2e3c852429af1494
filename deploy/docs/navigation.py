# Carillon · navigation.py
# SPDX-License-Identifier: Apache-2.0
"""The groups of the navigation. `docs/README.md` lists them, so that there is one index."""

import re
from dataclasses import dataclass, field

from sources import ASYNCAPI, INDEX, resolve

ROW = re.compile(r"^\| *\[(?P<label>[^\]]+)\]\((?P<link>[^)#]*)[^)]*\) *\| *(?P<about>[^|]*?) *\|$")
TABLE = "| page | about |"


@dataclass
class Group:
    """A group of pages, in the order in which readers should find them."""

    name: str
    pages: list = field(default_factory=list)


def read_groups(text, pages, messages, faults):
    """Returns the groups of the index, and sets the group and the label of each page.

    `messages` is the page that stands for the AsyncAPI document.
    """
    known = {page.source: page for page in pages if page.source}
    groups, name, is_listing = [], "", False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("## "):
            name, is_listing = line[3:].strip(), False
        elif line == TABLE:
            is_listing = True
            groups.append(Group(name))
        elif is_listing and (row := ROW.match(line)):
            link = resolve(INDEX, row["link"]) if row["link"] else INDEX
            page = messages if link == ASYNCAPI else known.get(link)
            if page is None:
                faults.add(f"{INDEX}:{number}", f"{row['link']} is no page of the site")
                continue
            place(page, groups[-1], row["label"], faults, f"{INDEX}:{number}")
    for page in pages:
        if not page.group:
            faults.add(page.place, f"is missing in the tables of {INDEX}")
    return groups


def place(page, group, label, faults, where):
    """Puts a page into a group."""
    if page.group:
        faults.add(where, f"{page.place} is listed twice")
        return
    page.group = group.name
    page.label = label[0].upper() + label[1:]
    group.pages.append(page)


def insert_after(groups, page, *rendered):
    """Puts groups of rendered pages after the group that has the page."""
    for index, group in enumerate(groups):
        if page in group.pages:
            groups[index + 1:index + 1] = rendered
            return
    groups.extend(rendered)


def neighbours(groups, page):
    """Returns the pages before and after a page; None at an end."""
    order = [each for group in groups for each in group.pages]
    index = order.index(page)
    before = order[index - 1] if index else None
    after = order[index + 1] if index + 1 < len(order) else None
    return before, after
