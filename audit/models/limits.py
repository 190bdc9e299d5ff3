"""How many images may be sent to a model that is asked from outside, and how often it may be called."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep

from audit.errors import QueryBudgetSpent


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """What the user allows per model, None without a bound: images sent in all, and calls per second."""

    max_queries: int | None = None
    rate_limit: float | None = None


NO_LIMITS = QueryLimits()


class Meter:
    """Counts the images of one model before they are sent, those of a repeated call and of padding included."""

    def __init__(self, limits: QueryLimits, who: str) -> None:
        self._limits = limits
        self._who = who
        self._sent = 0
        self._closed = False
        self._next_call = 0.0

    def spend(self, images: int) -> None:
        """Allow one call with `images` images, at the time it may be made.

        Raises:
            QueryBudgetSpent: the budget does not cover them; from then on no call is allowed, not even a smaller one.
        """
        most = self._limits.max_queries
        if most is not None and (self._closed or self._sent + images > most):
            self._closed = True
            if not self._sent:
                raise QueryBudgetSpent(
                    f"{self._who}: one call takes {images} images, more than --max-queries {most}, so none was sent; raise it"
                )
            raise QueryBudgetSpent(
                f"{self._who}: {self._sent} images were sent, and one more call would exceed --max-queries {most}; raise it, and "
                "name this result folder with --reuse to keep what was measured"
            )
        if self._limits.rate_limit is not None:
            now = monotonic()
            if now < self._next_call:
                sleep(self._next_call - now)
            self._next_call = max(now, self._next_call) + 1 / self._limits.rate_limit
        self._sent += images
