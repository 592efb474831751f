"""Structured logging: one line an event, JSON for machines or coloured text for a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO

import orjson
import structlog
from structlog.typing import FilteringBoundLogger, Processor

Format = Literal["json", "console"]
Level = Literal["debug", "info", "warning", "error", "critical"]


def configure(
    format_: Format = "json", level: Level = "info", stream: TextIO | None = None
) -> None:
    """Set up structlog, and the standard library's logging, to write to ``stream`` (stderr).

    stdout belongs to the answers of commands. Loggers obtained earlier follow.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    out = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if format_ == "json":
        render: list[Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_dump),
        ]
    else:
        render = [structlog.dev.ConsoleRenderer(colors=out.isatty())]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    # Libraries log through the standard library: the same lines, warnings and above only.
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))


def logger(part: str) -> FilteringBoundLogger:
    """The logger of one part of Muster; ``part`` is a key of every line."""
    bound: FilteringBoundLogger = structlog.get_logger(part=part)
    return bound


def _dump(value: object, **_: object) -> str:
    return orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
