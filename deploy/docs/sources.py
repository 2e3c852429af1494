# Carillon · sources.py
# SPDX-License-Identifier: Apache-2.0
"""The files of the checkout that the site is made of, and the pages they become."""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

# Pages of the root that are not about a folder, with their paths in the site.
ROOT_PAGES = {
    "README.md": "index.html",
    "CONTRIBUTING.md": "project/contributing.html",
    "CHANGELOG.md": "project/changelog.html",
    "SECURITY.md": "project/security.html",
}
# The index of the pages. It names the groups of the navigation.
INDEX = "docs/README.md"
ASYNCAPI = "docs/asyncapi.yaml"


@dataclass
class Section:
    """A part of a page that search can find: a heading and the text below it."""

    anchor: str
    heading: str
    level: int
    prose: str = ""
    code: str = ""


@dataclass
class Page:
    """A page of the site. Paths have forward slashes; `source` is None for a rendered API."""

    target: str
    source: str = None
    title: str = ""
    label: str = ""
    group: str = ""
    html: str = ""
    kind: str = "prose"
    anchors: set = field(default_factory=set)
    sections: list = field(default_factory=list)

    @property
    def place(self):
        """The path to name in a fault."""
        return self.source or self.target


def target_of(source):
    """Returns where a Markdown page of the checkout goes in the site."""
    if source in ROOT_PAGES:
        return ROOT_PAGES[source]
    if source == INDEX:
        return "pages.html"
    path = PurePosixPath(source)
    if path.parts[0] == "docs":
        path = path.relative_to("docs")
    name = "index.html" if path.name == "README.md" else f"{path.stem}.html"
    return str(path.with_name(name))


def find_pages(root):
    """Returns a page for every Markdown file that readers should find."""
    paths = [path for path in ROOT_PAGES if (root / path).exists()]
    for folder in ("docs", "examples"):
        found = sorted((root / folder).rglob("*.md"))
        paths += [path.relative_to(root).as_posix() for path in found]
    return [Page(target=target_of(path), source=path) for path in paths]


def read(root, path):
    """Returns the text of a file of the checkout."""
    return (Path(root) / path).read_text(encoding="utf-8")


def resolve(source, link):
    """Returns the path from the root that a link of a page leads to; None outside the checkout."""
    parts = list(PurePosixPath(source).parent.parts)
    for part in link.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            return None
    return "/".join(parts)


def relative(page, target):
    """Returns the path from one page of the site to another file of it."""
    here = list(PurePosixPath(page).parent.parts)
    there = list(PurePosixPath(target).parts)
    while here and len(there) > 1 and here[0] == there[0]:
        here, there = here[1:], there[1:]
    return "/".join([".."] * len(here) + there)
