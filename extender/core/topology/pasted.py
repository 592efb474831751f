"""Takes pasted text apart into the lines that a tool has printed.

What reaches Muster has been through terminals, logs, issues and pages: colours, quotation marks,
tables of Markdown, HTML, strings of a program, a time or the name of a host before each line. All
of it goes here, so that the readers of dumps see lines alone.
"""

from __future__ import annotations

import html
import re
from itertools import pairwise

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: As a program's string or a JSON document spells it.
_SPELT_ESCAPE = re.compile(r"\\(?:x1b|u001b|033|e)\[[0-9;?]*[A-Za-z]", re.IGNORECASE)
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
#: Byte order marks, and blanks that have no width.
_NOTHING = re.compile("[\ufeff\u200b-\u200d\u2060]")
_QUOTED = re.compile(r"""^ *(?:[#>|│┃║*"'] ?)+""")
#: What a table has between its rows: bars and dashes, no letter and no number.
_RULE = re.compile(r"(?=.*[|+\u2500-\u257f])(?=.*[-=─━═])[\s:=\-|+\u2500-\u257f]+")
_BARS = str.maketrans(dict.fromkeys("|│┃║", " "))
_DIGITS = re.compile(r"[0-9]+")
#: The most letters that a log is believed to put before a line.
_LONGEST_PREFIX = 200


def lines_of(text: str, known: re.Pattern[str]) -> list[str]:
    r"""The lines of ``text``, plain; columns that were below each other still are.

    ``known`` matches the beginning of a line that the wanted dump has. Where there is none, line
    breaks that are spelt out (``\n``) count too, and what stands before such a line goes from all.
    """
    lines = _unfolded(_lines(text), known)
    if not _has(lines, known) and "\\n" in text:
        spelt = text.replace("\\r", "").replace("\\n", "\n")
        lines = _lines(spelt.replace("\\t", "\t").replace('"', "\n"))
    return lines if _has(lines, known) else _without_prefix(lines, known)


def _unfolded(lines: list[str], known: re.Pattern[str]) -> list[str]:
    """Lines that a page has put on one are several again: one for each row, one for the header."""
    out: list[str] = []
    for line in lines:
        starts = [found.start() for found in known.finditer(line)]
        if len(starts) > 1:
            name = line[starts[0] :].split(maxsplit=1)[0]
            cuts = [0, line.find(name), *starts, len(line)]
            out += [line[begin:end] for begin, end in pairwise(cuts)]
        else:
            out.append(line)
    return out


def _has(lines: list[str], known: re.Pattern[str]) -> bool:
    return any(known.match(line) for line in lines)


def _lines(text: str) -> list[str]:
    text = _NOTHING.sub("", _SPELT_ESCAPE.sub("", _ESCAPE.sub("", text)))
    text = _BREAK.sub("\n", text)
    if "&nbsp;" in text or "&gt;" in text:
        text = html.unescape(_TAG.sub("", text))
    return [_plain(line) for line in text.splitlines() if not _RULE.fullmatch(line)]


def _plain(line: str) -> str:
    """Without quotation marks, emphasis and the bars of a table."""
    plain = _QUOTED.sub("", line.replace("\u00a0", " ").expandtabs(8))
    plain = plain.rstrip("\"',").removesuffix("\\n")
    return plain.translate(_BARS).replace("**", "").replace("`", "")


def _without_prefix(lines: list[str], known: re.Pattern[str]) -> list[str]:
    """Lines without what a log has put before each of them: a time, a host, a rank.

    Of several hosts or ranks the first one's lines count, as they begin with the very same words;
    a time differs from line to line, so where one line alone begins so, numbers may differ. Lines
    that do not begin so stay as they are.
    """
    found = next(filter(None, map(known.search, lines)), None)
    if found is None or found.start() > _LONGEST_PREFIX:
        return lines
    prefix = found.string[: found.start()]
    alike = re.compile("[0-9]+".join(map(re.escape, _DIGITS.split(prefix))))
    ours = [line for line in lines if line.startswith(prefix) or not alike.match(line)]
    same = [line.removeprefix(prefix) for line in ours]
    if sum(known.match(line) is not None for line in same) > 1:
        return same
    return [alike.sub("", line, count=1) if alike.match(line) else line for line in lines]
