"""What one or several calls drafted: how many tokens, and how many of them the model agreed with."""

import math
from dataclasses import dataclass, replace

COUNTS = ("rounds", "drafted", "accepted", "tokens", "plain", "seconds")


@dataclass
class Speculated:
    """What a call drafted: `accepted` of `drafted` tokens in `rounds`, `tokens` new in all.

    `layer` and `draft_tokens` are those of the last round, 0 tokens where plain decoding was
    faster. `plain` of the tokens were decoded without drafts; the call took `seconds`.

    >>> from layerscope.generation import Speculated
    >>> print(Speculated(layer=4, draft_tokens=3, rounds=10, drafted=30, accepted=24, tokens=34))
    drafts by layer 4: 24 of 30 draft tokens accepted (80%)
    """

    layer: int = 0
    draft_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    plain: int = 0
    seconds: float = 0.0

    @property
    def acceptance(self) -> float:
        """Share of drafted tokens that were accepted, NaN where none was drafted."""
        if self.drafted:
            return self.accepted / self.drafted
        return math.nan

    def __add__(self, later: "Speculated") -> "Speculated":
        """Return the counts of two calls together, with what else the later one says."""
        counts = {name: getattr(self, name) + getattr(later, name) for name in COUNTS}
        return replace(later, **counts)

    def __str__(self) -> str:
        if 2 * self.plain > self.tokens:
            return f"drafts do not pay here: {self.plain} of {self.tokens} tokens were decoded plainly"
        accepted = f"{self.accepted} of {self.drafted} draft tokens accepted"
        return f"drafts by layer {self.layer}: {accepted} ({self.acceptance:.0%})"
