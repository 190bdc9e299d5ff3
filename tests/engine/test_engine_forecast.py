"""The forecast grows each stage by what its examples needed: survivors by the blocks they fill, capped kinds up to their cap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_by_hand import LINF, worst_case

from audit.engine.forecast import blocks, calibration_part, forecast
from audit.engine.measure import Gathered
from audit.evidence import BROKEN, Evidence, EvidenceKey, EvidenceStore
from audit.settings import Settings

SETTINGS = replace(Settings.of("quick"), block_rows=8, chunk_rows=32)
WHITE = EvidenceKey(kind=Evidence.WORST_CASE_WHITE_BOX, threat=LINF)
SPECTRUM = EvidenceKey(kind=Evidence.FISHER_SPECTRUM)


def test_blocks_are_counted_as_an_attack_on_survivors_asks_for_them():
    passes = np.random.default_rng(0).integers(0, 30, size=32)
    asked = 0
    for start in range(0, 96, 32):
        whole = np.tile(passes, 3)[start : start + 32]
        asked += sum(-(-int((whole > done).sum()) // 8) for done in range(30))
    assert blocks(passes, 96, SETTINGS) == asked
    assert blocks(passes, 32, SETTINGS) * 3 == asked
    # Half a chunk fills its blocks worse than a whole one.
    assert blocks(passes, 16, SETTINGS) >= asked / 6


def test_a_lonely_survivor_costs_a_block_among_few_and_among_many():
    passes = np.array([1] * 31 + [100])
    evidence = worst_case(np.full(32, BROKEN))
    evidence = replace(evidence, forward_passes=passes, backward_passes=np.zeros(32, dtype=int))
    gathered = Gathered(store=EvidenceStore({WHITE: evidence}), failed={}, seconds={WHITE: 2.0})
    # 4 + 99 blocks for the 32 that were measured, the same for each further chunk of 32.
    assert forecast(gathered, SETTINGS, 32, 320) == {WHITE: pytest.approx(20.0)}
    # Chunks of 320 hold ten survivors each, which fill two blocks instead of ten.
    larger = replace(SETTINGS, chunk_rows=320)
    assert forecast(gathered, larger, 32, 320) == {WHITE: pytest.approx(2.0 * (40 + 99 * 2) / (4 + 99))}


def test_what_is_measured_on_some_examples_grows_up_to_them():
    most = SETTINGS.profile.fisher_samples
    gathered = Gathered(store=EvidenceStore({}), failed={SPECTRUM: "broke"}, seconds={SPECTRUM: 3.0})
    assert forecast(gathered, SETTINGS, most // 2, 10 * most) == {SPECTRUM: pytest.approx(6.0)}
    assert forecast(gathered, SETTINGS, most, 10 * most) == {SPECTRUM: pytest.approx(3.0)}


def test_a_few_whole_blocks_are_measured():
    assert len(calibration_part(np.arange(500), SETTINGS)) == 64
    assert len(calibration_part(np.arange(10), SETTINGS)) == 10
    assert len(calibration_part(np.arange(500), replace(SETTINGS, block_rows=128))) == 128
