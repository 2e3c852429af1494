# Carillon · layout.py
# SPDX-License-Identifier: Apache-2.0
"""The frame of every page: header, navigation, contents, and the pages before and after."""

from markup import Markup, join, tag
from navigation import neighbours
from sources import relative

# `file:` lets the same pages work from a folder; over HTTP it allows nothing more.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; "
    "base-uri 'none'; form-action 'none'"
)
STYLES = ("palette.css", "site.css", "api.css", "code.css")
SCRIPTS = ("page.js", "search.js")


class Layout:
    """Frames pages of one site."""

    def __init__(self, groups, version):
        self.groups = groups
        self.version = version

    def frame(self, page, content):
        """Returns a whole page."""
        depth = page.target.count("/")
        head = tag("head", self.head(page))
        body = tag(
            "body",
            tag("a", "Skip to content", class_="skip", href="#content"),
            self.header(page),
            tag("div", self.navigation(page), self.main(page, content), self.contents(page, "aside"), class_="columns"),
            data_root="../" * depth, class_=page.kind,
        )
        return "<!DOCTYPE html>\n" + tag("html", head, "\n", body, lang="en") + "\n"

    # Head and header.

    def head(self, page):
        def here(path):
            return relative(page.target, path)

        name = "Carillon" if page.target == "index.html" else f"{page.title} · Carillon"
        return join(
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="description", content=self.description(page)),
            tag("title", name),
            tag("link", rel="icon", type="image/svg+xml", href=here("assets/icon.svg")),
            [tag("link", rel="stylesheet", href=here(f"assets/{each}")) for each in STYLES],
            # Before the body, so that the page does not flash in the wrong theme.
            tag("script", src=here("assets/theme.js")),
            [tag("script", src=here(f"assets/{each}"), defer=True) for each in SCRIPTS],
        )

    def description(self, page):
        """Returns the beginning of a page's text."""
        text = next((section.prose for section in page.sections if section.prose), page.title)
        return text if len(text) <= 160 else text[:160].rsplit(" ", 1)[0] + " …"

    def header(self, page):
        home = relative(page.target, "index.html")
        icon = tag("img", src=relative(page.target, "assets/icon.svg"), alt="", width=28, height=28)
        brand = tag("a", icon, tag("span", "Carillon"), tag("small", self.version), href=home, class_="brand")
        # A link, so that it also opens the navigation without a script.
        menu = tag("a", "Menu", href="#menu", class_="menu-button")
        return tag("header", brand, self.search(), tag("div", self.theme_button(), menu, class_="tools"),
                   class_="masthead")

    def search(self):
        return tag(
            "div",
            tag("label", "Search the documentation", for_="query", class_="spoken"),
            tag("input", id="query", type="search", role="combobox", aria_expanded="false", aria_controls="results",
                aria_autocomplete="list", autocomplete="off", spellcheck="false", placeholder="Search"),
            tag("kbd", "/", aria_hidden="true"),
            tag("div", tag("div", id="results", role="listbox", aria_label="Results"),
                tag("p", id="found", role="status"), class_="found", hidden=True),
            class_="search", role="search", hidden=True,
        )

    def theme_button(self):
        icon = tag("span", class_="theme-icon", aria_hidden="true")
        return tag("button", icon, type="button", class_="theme", id="theme", aria_label="Dark theme",
                   aria_pressed="false", hidden=True)

    # Left and right of the content.

    def navigation(self, page):
        """Returns the groups of all pages; the page's own group is open."""
        groups = [self.group(group, page) for group in self.groups]
        close = tag("a", "Close", href="#content", class_="menu-close")
        return tag("nav", close, groups, id="menu", aria_label="Pages", class_="pages")

    def group(self, group, page):
        items = []
        for each in group.pages:
            current = "page" if each is page else None
            href = relative(page.target, each.target)
            items.append(tag("li", tag("a", each.label, href=href, aria_current=current)))
        is_open = page in group.pages or (group is self.groups[0] and page.target == "index.html")
        return tag("details", tag("summary", group.name), tag("ul", items), open=is_open)

    def contents(self, page, place):
        """Returns the contents of a page, for the column on its right or for its top."""
        entries = [section for section in page.sections if section.level in (2, 3)]
        if len(entries) < 2:
            return tag("aside", class_="contents") if place == "aside" else None
        # Long pages list their main sections only.
        if len(entries) > 40:
            entries = [section for section in entries if section.level == 2] or entries
        items = [
            tag("li", tag("a", section.heading, href=f"#{section.anchor}"), class_=f"level-{section.level}")
            for section in entries
        ]
        if place == "aside":
            heading = tag("p", "On this page", class_="contents-title", id="contents-title")
            return tag("aside", tag("nav", heading, tag("ul", items), aria_labelledby="contents-title"),
                       class_="contents")
        inner = tag("nav", tag("ul", items), aria_label="On this page")
        return tag("details", tag("summary", "On this page"), inner, class_="contents-top")

    # The content.

    def main(self, page, content):
        eyebrow = tag("p", page.group, class_="eyebrow") if page.group else None
        return tag(
            "main", eyebrow, self.with_contents(content, self.contents(page, "top")),
            self.footer(page), id="content", tabindex="-1",
        )

    def with_contents(self, content, contents):
        """Returns the content with its contents below the title."""
        head, end, rest = content.partition("</h1>")
        article = Markup(head + end) + join(contents) + Markup(rest) if end else join(contents, content)
        return tag("article", Markup(article))

    def footer(self, page):
        links = [None, None]
        if page.group:
            links = neighbours(self.groups, page)
        shown = [
            tag("a", tag("small", words), tag("span", other.label), href=relative(page.target, other.target),
                class_=words.lower(), rel=words.lower().replace("previous", "prev"))
            for words, other in zip(("Previous", "Next"), links) if other
        ]
        pager = tag("nav", shown, class_="pager", aria_label="Pages before and after") if shown else None
        source = tag("p", "Source: ", tag("code", page.source), class_="source") if page.source else None
        return tag("footer", pager, source)
