"""Which frames of a sequence are compared with which."""

from __future__ import annotations

import torch
from small_run import SMALL, sample

from audit.collect import sequences as collector
from audit.corruptions.families import FAMILIES
from audit.evidence import EvidenceStore
from audit.settings import Settings


def test_noise_is_compared_with_the_first_frame_and_the_rest_with_the_one_before():
    class Alternating:
        """Answers 0, 1, 1, 1, ...: one change of frame, and 30 frames that differ from the first."""

        device, lacks, classes = torch.device("cpu"), {}, 2

        def __init__(self):
            self.asked = 0

        def logits(self, images):
            answer = int(self.asked % 31 > 0)
            self.asked += 1
            return torch.nn.functional.one_hot(torch.full((len(images),), answer), 2).float()

    found = collector.collect(Alternating(), sample(), Settings(profile=SMALL), EvidenceStore(), None)
    by_family = dict(zip(FAMILIES, found.flips[0].tolist(), strict=True))
    assert by_family.pop("gaussian_noise") == by_family.pop("shot_noise") == 30 and set(by_family.values()) == {1}
