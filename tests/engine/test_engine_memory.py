"""Peak memory is that of a chunk: ten times the data within ten percent."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

AUDIT = """
import resource, sys
from dataclasses import replace
from pathlib import Path
import torch
torch.set_num_threads(1)
from audit.pipeline import AuditRequest, run_audit
from audit.profiles import Search
from audit.settings import Settings
settings = replace(Settings.of("quick"), samples=int(sys.argv[1]))
queries = (Search(attack="random noise", steps=2), Search(attack="Square", steps=10))
short = replace(settings.profile, score_based=queries, curve_queries=10, reference_queries=10, curve=(1.0,), fisher_samples=32)
request = AuditRequest(models=("model.onnx",), data="data.npz", settings=replace(settings, profile=short), out=Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert run_audit(request).result.data.samples == int(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is counted in other units elsewhere")
def test_ten_times_the_data_within_ten_percent(tmp_path):
    generator = np.random.default_rng(0)
    templates = generator.random((10, 3, 32, 32)).astype(np.float32)
    labels = np.arange(3000) % 10
    images = np.empty((3000, 3, 32, 32), dtype=np.uint8)
    for start in range(0, 3000, 500):
        noise = generator.random((500, 3, 32, 32), dtype=np.float32)
        images[start : start + 500] = 127 * (templates[labels[start : start + 500]] + noise)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).eval()
    flat = torch.from_numpy(templates).flatten(1)
    with torch.no_grad():
        network[1].weight.copy_(0.2 * (flat - flat.mean(dim=0)))
        network[1].bias.copy_(-0.1 * (flat * (flat - flat.mean(dim=0))).sum(dim=1) - network[1].weight @ torch.full((3072,), 0.25))
    torch.onnx.export(
        *(network, (torch.zeros(2, 3, 32, 32),), tmp_path / "model.onnx"),
        dynamic_shapes=({0: torch.export.Dim("n")},),
        external_data=False,
        verbose=False,
    )
    peaks = []
    for samples in ("300", "3000"):
        done = subprocess.run([sys.executable, "-c", AUDIT, samples], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout))
    assert peaks[1] <= 1.1 * peaks[0], peaks
