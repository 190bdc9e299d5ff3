"""What is looked at before a subject is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from audit import data
from audit.data.sampling import sample
from audit.engine import subject
from audit.engine.journal import open_journal
from audit.models.torch_module import in_memory_identity, wrap
from audit.settings import Settings


@pytest.mark.parametrize(("opaque", "count"), [(False, 64), (True, 32)])
def test_outputs_are_settled_on_more_than_the_first_block(tmp_path, monkeypatch, opaque, count):
    seen = []

    def settle(classifier, images):
        seen.append(len(images))
        return classifier

    monkeypatch.setattr(subject, "resolve_outputs", settle)
    dataset = data.load("digits:test")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    identity = replace(in_memory_identity("net"), opaque=opaque)
    classifier = wrap(network, image_shape=dataset.image_shape, identity=identity, device="cpu", block_rows=32)
    settings = replace(Settings.of("quick"), block_rows=32)
    with open_journal(tmp_path) as journal:
        subject.open_subject(
            *(classifier, dataset, sample(dataset, 100, 0), settings, journal, lambda _: None),
            is_reference=False,
            allow_chance=True,
        )
    assert seen == [count]
