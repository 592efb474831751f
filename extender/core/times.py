"""RFC 3339 text and seconds since the epoch; pure (nothing here reads a clock)."""

from __future__ import annotations

from datetime import UTC, datetime

#: The end of the year 9999, which is the last that RFC 3339 can write.
LAST = 253_402_300_799


def parse(text: object) -> float | None:
    """Seconds since the epoch; None for what is absent, or is no time that can be written again."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):  # written by somebody else; it then says nothing
        return None
    return at if 0 <= at <= LAST else None


def seconds(text: str | None) -> float:
    """As :func:`parse`; 0.0 for none."""
    return parse(text) or 0.0


def rfc3339(at: float) -> str:
    """Whole seconds, in UTC, as metav1.Time writes them."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
