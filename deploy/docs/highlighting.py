# Carillon · highlighting.py
# SPDX-License-Identifier: Apache-2.0
"""Code blocks with colours. The colours are classes; `code.css` has them."""

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from markup import Markup, tag

# Languages that the pages use under a name that Pygments does not know.
ALIASES = {"tsx": "ts", "env": "sh"}
SUFFIXES = {".py": "python", ".sql": "sql", ".yaml": "yaml", ".sh": "sh", ".json": "json", ".jsonl": "json"}
FORMATTER = HtmlFormatter(nowrap=True, classprefix="t-")


def is_known(language):
    """Whether code in this language can be coloured; true for code without a language."""
    return not language or lexer_of(language) is not None


def lexer_of(language):
    """Returns the lexer of a language; None if there is none."""
    try:
        return get_lexer_by_name(ALIASES.get(language, language), stripnl=False)
    except ClassNotFound:
        return None


def code_block(text, language=""):
    """Returns a block of code."""
    lexer = lexer_of(language) if language and language != "text" else None
    colored = Markup(highlight(text, lexer, FORMATTER)) if lexer else text
    return tag("div", tag("pre", tag("code", colored)), class_="code")
