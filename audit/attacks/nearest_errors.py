"""The first stage of a label-only arm: the nearest error of each example, whatever its distance, by HopSkipJump."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.ball import distance
from audit.attacks.hop_skip_jump import hop_skip_jump
from audit.attacks.minimal import inside
from audit.attacks.run import Batch, Oracle, misclassified
from audit.attacks.stages import Stage
from audit.evidence import Floats
from audit.profiles import Search
from audit.vocabulary import Threat


class NearestErrors:
    """A stage that proposes what lies inside the ball, and keeps how far the rest lies.

    `distance` (n,) of the nearest error met by row of the chunk, in the norm of the threat: infinite until the stage has run, and
    where it met none.
    """

    def __init__(self, search: Search, seed: int, size: int) -> None:
        self.distance: Floats = np.full(size, np.inf)
        self._search, self._seed = search, seed

    @property
    def stage(self) -> Stage:
        """For the cascade."""
        return Stage(name=self._search.name, propose=self._propose)

    def _propose(self, oracle: Oracle, batch: Batch, threat: Threat) -> torch.Tensor:
        images = hop_skip_jump(oracle, batch, threat.norm, queries=self._search.steps, seed=self._seed, purpose="nearest")
        # The harness will ask about what lies inside the ball only.
        broken = misclassified(oracle.logits(batch, images), batch.labels)
        away = distance(images, batch.images, threat.norm)
        self.distance[batch.rows] = torch.where(broken, away, torch.inf).cpu().numpy()
        return inside(batch, images, threat)
