"""The journal: whole or absent, found again by fingerprint, damaged entries measured again, one audit per folder."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_arms
from policy_text import open_policy

from audit import data, models
from audit.collect import COLLECTORS
from audit.data.corrupted import CorruptedFiles
from audit.data.sampling import chunks, sample
from audit.engine import fingerprint
from audit.engine.folder import prepare_folder
from audit.engine.journal import JOURNAL_FOLDER, decode, encode, open_journal
from audit.engine.local import Gatherer
from audit.engine.subject import open_subject
from audit.errors import InputError
from audit.evidence import OF_REFERENCE, Evidence, EvidenceKey, Temperature
from audit.models import resolve_outputs
from audit.models.composed import ComposedClassifier
from audit.models.ref import ModelRef
from audit.pipeline import AuditRequest, run_audit
from audit.result import from_json, to_json
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

THREATS = (Threat.parse("linf:0.15"), Threat.parse("l2:0.5"))
SETTINGS = replace(Settings.of("quick"), threats=THREATS, samples=80, chunk_rows=32)

NOWHERE = {"kinds": ("fog",), "folder": Path(), "files": {}, "image_shape": (1, 8, 8), "resize": None}


def silent(_):
    pass


def request_of(digits_store, out, **changes) -> AuditRequest:
    return AuditRequest(
        **{
            "models": (digits_store.standard,),
            "data": "digits:test",
            "settings": SETTINGS,
            "out": Path(out),
            "tracking_uri": digits_store.uri,
            "registry_uri": digits_store.uri,
            **changes,
        }
    )


def numbers(folder: Path) -> tuple[object, object]:
    """Everything in a result that does not say when, where or how fast it was made."""
    result = from_json((folder / "result.json").read_bytes())
    timeless = replace(result, id="", created="", models=tuple(replace(model, seconds=0.0) for model in result.models))
    return to_json(timeless), pq.read_table(folder / "examples.parquet")


@pytest.fixture(scope="module")
def measured(digits_store, tmp_path_factory):
    """One audit whose journal the other tests read."""
    out = tmp_path_factory.mktemp("measured") / "out"
    run_audit(request_of(digits_store, out))
    return out


@pytest.fixture(scope="module")
def gathered(digits_store, tmp_path_factory):
    """Every kind of evidence of one subject."""
    dataset = data.load("digits:test")
    classifier = models.load(
        ModelRef.parse(digits_store.standard),
        image_shape=dataset.image_shape,
        tracking_uri=digits_store.uri,
        registry_uri=digits_store.uri,
    )
    with open_journal(tmp_path_factory.mktemp("journal")) as journal:
        subject = open_subject(
            *(classifier, dataset, sample(dataset, 40, 0), SETTINGS, journal, silent), is_reference=False, allow_chance=False
        )
        for stage in subject.plan.stages:
            if stage.key not in subject.gatherer.store:
                subject.gatherer.gather(stage.key, stage.needs)
    return subject


def same(first, second) -> bool:
    pairs = [(getattr(first, field.name), getattr(second, field.name)) for field in fields(first)]
    return all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and a.dtype == b.dtype
        if isinstance(a, np.ndarray)
        else all(same(x, y) for x, y in zip(a, b, strict=True))
        if isinstance(a, tuple) and a and hasattr(a[0], "clean")
        else a == b
        for a, b in pairs
    )


def test_every_kind_of_evidence_survives_the_journal(gathered):
    assert {key.kind for key in gathered.gatherer.store} == set(Evidence) - set(OF_REFERENCE)
    for key, evidence in gathered.gatherer.store.items():
        again = decode(encode(evidence))
        assert type(again) is type(evidence)
        assert same(evidence, again), key


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-1], lambda text: text[:100], lambda text: b"", lambda text: text[:-9] + b"x" + text[-8:]]
)
def test_a_damaged_entry_is_noticed_and_measured_again(gathered, tmp_path, damage):
    fit = Temperature(value=1.5, loss_before=1.0, loss_after=0.5, at_limit=False)
    with open_journal(tmp_path) as journal:
        journal.keep("f" * 64, fit)
        assert journal.find("f" * 64) == fit
        (path,) = (tmp_path / JOURNAL_FOLDER).glob("*.evidence")
        path.write_bytes(damage(path.read_bytes()))
        assert journal.find("f" * 64) is None


def test_the_declared_settings_are_the_ones_read(gathered, digits_store):
    """A setting that is read but not declared would let stale evidence pass as fresh."""

    class Recorder:
        def __init__(self, target, prefix, seen):
            self.__dict__.update(_target=target, _prefix=prefix, _seen=seen)

        def __getattr__(self, name):
            value = getattr(self._target, name)
            if name == "profile":
                return Recorder(value, "profile.", self._seen)
            if callable(value):
                # A method reads through the recorder as well.
                return lambda *arguments, **named: getattr(type(self._target), name)(self, *arguments, **named)
            self._seen.add(self._prefix + name)
            return value

    dataset = data.load("digits:test")
    chunk = next(chunks(dataset, sample(dataset, 40, 0), 32))
    onnx = resolve_outputs(
        models.load(ModelRef.parse(str(digits_store.onnx_standard)), image_shape=dataset.image_shape, black_box=True),
        __import__("torch").from_numpy(chunk.images),
    )
    labelled = ComposedClassifier(onnx, identity=onnx.identity, lacks={**onnx.lacks, Capability.SCORES: "labels only"})
    whole = gathered.classifier
    asked = ComposedClassifier(whole, identity=whole.identity, lacks={**whole.lacks, Capability.GRADIENTS: "queries only"})
    for key in gathered.gatherer.store:
        if key.kind not in COLLECTORS:
            continue
        seen: set[str] = set()
        rows = gathered.gatherer._rows(0, 32)
        queried = {Evidence.REFERENCE_ATTACK, Evidence.ACCURACY_EPSILON, Evidence.WORST_CASE_BLACK_BOX}
        lacking = [onnx, labelled] if key.kind in queried and key.threat == THREATS[0] else []
        lacking += [asked] if key.kind is Evidence.ADVERSARIAL_NEURONS else []
        for classifier in (gathered.classifier, *lacking):
            COLLECTORS[key.kind].collect(classifier, chunk, Recorder(SETTINGS, "", seen), rows, key.threat)
        allowed = COLLECTORS[key.kind].reads
        assert seen <= allowed, key
        if key.threat == THREATS[0] or key.threat is None:
            assert seen == allowed, key


@pytest.mark.parametrize(
    ("change", "invalid"),
    [
        (
            {"seed": 1},
            {
                *("probe", "gradient_probe", "gradient_health", "reference_attack", "worst_case_white_box"),
                *("worst_case_black_box", "accuracy_epsilon", "fisher_spectrum", "fisher_estimate"),
                *("neuron_profile", "neurons", "adversarial_neurons", "boundary_distance", "noise_response", "certification"),
                *("universal_perturbation", "universal_effect"),
                *("corruptions", "sequences"),
            },
        ),
        ({"profile": replace(SETTINGS.profile, score_based=small_arms.queries(1, 7))}, {"worst_case_black_box"}),
        ({"profile": replace(SETTINGS.profile, linf=small_arms.pgd(margin=3))}, {"worst_case_white_box", "accuracy_epsilon"}),
        ({"profile": replace(SETTINGS.profile, fisher_directions=7)}, {"fisher_estimate"}),
        ({"shown_failures": 1}, {"worst_case_white_box", "worst_case_black_box", "accuracy_epsilon"}),
        ({"layers": ("*",)}, {"neuron_profile", "neurons", "adversarial_neurons"}),
        ({"device": "cpu"}, set()),
    ],
    ids=["seed", "square", "pgd", "directions", "shown", "layers", "device"],
)
def test_a_setting_invalidates_just_what_depends_on_it(gathered, tmp_path, change, invalid):
    dataset, indices = data.load("digits:test"), sample(data.load("digits:test"), 40, 0)
    with open_journal(tmp_path) as journal:
        before, after = (
            Gatherer(gathered.classifier, dataset, indices, settings, journal, silent)
            for settings in (SETTINGS, replace(SETTINGS, **change))
        )
        changed = set()
        stages = [(EvidenceKey(kind=Evidence.PREDICTIONS), ()), *((stage.key, stage.needs) for stage in gathered.plan.stages)]
        for key, needs in stages:
            if before.fingerprints(key, needs) != after.fingerprints(key, needs):
                changed.add(key.kind.value)
    assert changed == invalid


def test_another_folder_of_corrupted_images_invalidates_the_answers_to_it(gathered, tmp_path):
    dataset, indices = data.load("digits:test"), sample(data.load("digits:test"), 40, 0)
    keys = [EvidenceKey(kind=kind) for kind in (Evidence.CORRUPTIONS, Evidence.SEQUENCES)]
    folders = [None, *(CorruptedFiles(**{**NOWHERE, "digest": digest}) for digest in ("a", "a", "b"))]
    with open_journal(tmp_path) as journal:
        prints = [
            [Gatherer(*(gathered.classifier, dataset, indices, SETTINGS, journal, silent), corrupted=folder).fingerprints(key, ())]
            for folder in folders
            for key in keys
        ]
    made, sequences, first, _, again, _, other, last = prints
    assert first == again and made != first != other != made and sequences == last


def test_another_model_image_or_block_has_another_fingerprint(gathered, digits_store):
    identity = gathered.classifier.identity
    assert fingerprint.model(identity, (), 32) != fingerprint.model(identity, (), 16)
    assert fingerprint.model(identity, (), 32) != fingerprint.model(replace(identity, digest="0" * 64), (), 32)
    assert fingerprint.model(identity, (), 32) != fingerprint.model(identity, ("gradients",), 32)
    assert fingerprint.model(identity, (), 32) == fingerprint.model(replace(identity, name="another name", version="9"), (), 32)
    # A function with a defence may say the same of clean images as the one without, in the same module.
    defended = replace(identity, uri="functions:defended")
    assert fingerprint.model(identity, (), 32, "same") != fingerprint.model(defended, (), 32, "same")
    dataset = data.load("digits:test")
    chunk = next(chunks(dataset, sample(dataset, 40, 0), 32))
    moved = chunk.images.copy()
    moved[3, 0, 4, 4] += 1 / 255
    assert fingerprint.chunk(chunk) != fingerprint.chunk(replace(chunk, images=moved))


def test_a_changed_policy_costs_no_new_attack(measured, digits_store, tmp_path, monkeypatch):
    policy = tmp_path / "policy.toml"
    policy.write_text(open_policy('metric = "clean_accuracy"\nat_least = 0.5'))

    def forbidden(*_, **__):
        raise AssertionError("this evidence was already measured")

    for kind, collector in COLLECTORS.items():
        monkeypatch.setitem(COLLECTORS, kind, replace(collector, collect=forbidden))
    run = run_audit(request_of(digits_store, tmp_path / "again", policy=policy, reuse=(measured,)))
    model = run.result.models[0]
    assert model.verdict.policy == "p"
    assert model.metrics == from_json((measured / "result.json").read_bytes()).models[0].metrics


@pytest.mark.usefixtures("few_metrics")
def test_a_larger_sample_attacks_its_new_examples_only(measured, digits_store, tmp_path):
    """Gradients are judged anew on a larger probe; as long as they are believed, what was attacked stays attacked."""
    reused = {}

    def listen(progress):
        reused[progress.stage] = (progress.reused, progress.total)

    larger = replace(SETTINGS, threats=THREATS[:1], samples=100)
    run_audit(request_of(digits_store, tmp_path / "out", settings=larger, reuse=(measured,)), listen)
    assert reused["worst_case_white_box/linf_0.15"] == (64, 100) == reused["worst_case_black_box/linf_0.15"]
    assert reused["gradient_probe/linf_0.15"] == (0, 100)


def test_a_folder_without_a_journal_cannot_be_reused(digits_store, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no journal"):
        run_audit(request_of(digits_store, tmp_path / "out", reuse=(tmp_path / "empty",)))


def test_a_second_audit_in_the_same_folder_is_refused(tmp_path):
    with open_journal(tmp_path), pytest.raises(InputError, match="another audit is at work"), open_journal(tmp_path):
        pass
    with open_journal(tmp_path):
        pass


def test_an_unfinished_audit_is_not_overwritten_by_accident(tmp_path):
    with open_journal(tmp_path) as journal:
        journal.begin()
    with pytest.raises(InputError, match="--resume"):
        prepare_folder(tmp_path, resume=False)
    prepare_folder(tmp_path, resume=True)


def test_a_killed_audit_goes_on_with_identical_numbers(measured, digits_store, tmp_path):
    """SIGKILL at several moments of the same audit; the full series of fifty is a benchmark."""
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "audit",
        "run",
        digits_store.standard,
        "--data",
        "digits:test",
        "--out",
        str(out),
        "--no-mlflow",
        "--no-pdf",
    ]
    for threat in THREATS:
        command += ["--threat", str(threat)]
    command += ["--samples", "80", "--tracking-uri", digits_store.uri, "--resume", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kills = 0
    for entries in (1, 4, 8):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(out.glob(f"{JOURNAL_FOLDER}/*.evidence"))) < entries:
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills == 3
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (first, table), (second, other) = numbers(out), numbers(measured)
    # How it was asked for; the numbers of both chunk sizes are the same.
    asked = ('"command"', '"chunk rows"')
    strip = lambda text: [line for line in text.decode().splitlines() if not any(word in line for word in asked)]  # noqa: E731
    assert strip(first) == strip(second)
    assert table.equals(other)


def collect_elsewhere(model: str, threat: Threat, queue) -> None:
    import torch

    torch.set_num_threads(1)
    dataset = data.load("digits:test")
    chunk = next(chunks(dataset, sample(dataset, 16, 0), 16))
    classifier = resolve_outputs(
        models.load(ModelRef.parse(model), image_shape=dataset.image_shape), torch.from_numpy(chunk.images)
    )
    from audit.evidence import EvidenceStore

    store = EvidenceStore()
    clean = EvidenceKey(kind=Evidence.PREDICTIONS)
    store = store.with_item(clean, COLLECTORS[Evidence.PREDICTIONS].collect(classifier, chunk, SETTINGS, store, None))
    found = COLLECTORS[Evidence.WORST_CASE_BLACK_BOX].collect(classifier, chunk, SETTINGS, store, threat)
    queue.put(encode(found))


def test_a_spawned_process_gathers_the_same(digits_store):
    context = multiprocessing.get_context("spawn")
    elsewhere, here = context.Queue(), context.Queue()
    process = context.Process(target=collect_elsewhere, args=(str(digits_store.onnx_standard), THREATS[0], elsewhere))
    process.start()
    collect_elsewhere(str(digits_store.onnx_standard), THREATS[0], here)
    assert elsewhere.get(timeout=120) == here.get(timeout=10)
    process.join()


@pytest.mark.usefixtures("few_metrics")
def test_a_time_budget_takes_fewer_examples_and_is_decided_once(digits_store, tmp_path):
    out = tmp_path / "out"
    run = run_audit(request_of(digits_store, out, time_budget=0.01))
    assert run.result.data.samples == 32
    assert run.result.models[0].metric("clean_accuracy").outcome.samples == 32
    run = run_audit(request_of(digits_store, tmp_path / "rich", time_budget=3600.0))
    assert run.result.data.samples == 80


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")]
)
@pytest.mark.usefixtures("few_metrics")
def test_a_block_that_does_not_fit_is_halved_once_and_said(digits_store, tmp_path, monkeypatch, error):
    from audit.models import torch_module

    honest = torch_module.TorchClassifier.loss_gradient
    sizes = []

    def small_machine(self, images, loss):
        sizes.append(self._block_rows)
        if self._block_rows > 16:
            from audit.models.blocks import map_blocks

            def fails(*_):
                raise error

            map_blocks(images, self._block_rows, fails)
        return honest(self, images, loss)

    monkeypatch.setattr(torch_module.TorchClassifier, "loss_gradient", small_machine)
    run = run_audit(request_of(digits_store, tmp_path / "out"))
    assert set(sizes) == {32, 16}
    assert "halved: 32 did not fit" in run.result.manifest.settings["block rows"]
    assert {record.outcome.kind for record in run.result.models[0].metrics} <= {"measured", "undefined", "not_applicable"}


@pytest.mark.usefixtures("few_metrics")
def test_a_machine_that_is_too_small_says_so(digits_store, tmp_path, monkeypatch):
    from audit.models import torch_module
    from audit.models.blocks import map_blocks

    def fails(*_):
        raise MemoryError

    monkeypatch.setattr(
        torch_module.TorchClassifier, "loss_gradient", lambda self, images, _: map_blocks(images, self._block_rows, fails)
    )
    run = run_audit(request_of(digits_store, tmp_path / "out"))
    broken = run.result.models[0].metric("adversarial_accuracy_white_box/linf_0.15").outcome
    assert broken.kind == "failed"
    assert "16 images does not fit into memory" in broken.error
    assert run.result.models[0].metric("adversarial_accuracy_black_box/linf_0.15").outcome.kind == "measured"


def test_evidence_from_the_journal_reads_no_images(gathered, tmp_path, monkeypatch):
    dataset = data.load("digits:test")
    indices = sample(dataset, 80, 0)
    stages = [stage for stage in gathered.plan.stages if stage.key.kind in {Evidence.PREDICTIONS, Evidence.WORST_CASE_BLACK_BOX}]
    reads: list[int] = []
    images = type(dataset).images
    monkeypatch.setattr(type(dataset), "images", lambda self, rows: reads.append(len(rows)) or images(self, rows))
    with open_journal(tmp_path) as journal:
        for expected in (80 * (1 + len(stages)), 80):
            reads.clear()
            gatherer = Gatherer(gathered.classifier, dataset, indices, SETTINGS, journal, silent)
            for stage in stages:
                gatherer.gather(stage.key, stage.needs)
            # The fingerprints take one look at every image; a stage that was measured before takes none.
            assert sum(reads) == expected
