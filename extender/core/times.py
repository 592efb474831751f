"""RFC 3339 text and seconds since the epoch; pure (nothing here reads a clock)."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds(text: str | None) -> float:
    """Seconds since the epoch; 0.0 for an absent or unreadable time."""
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def rfc3339(at: float) -> str:
    """Whole seconds, in UTC, as metav1.Time writes them."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
