"""A made-up audit for tests of the sinks: every number is invented, every outcome kind occurs. Not a measurement of anything."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sample_judgement import checks, verdict
from sample_metrics import KEY, SHOWN_FISHER, THREAT, N, metrics, share, wilson

from audit import result as r

HOSTILE = "<script>alert(1)</script>\x1b[31m::set-output \u202egnp.exe ‮ שלום 模型 " + "very-long-name-" * 20
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
EPSILONS = (0.0, 2 / 255, 4 / 255, 8 / 255, 16 / 255)


def model(
    index: int,
    *,
    name: str,
    version: str | None,
    reference: bool,
    judged: bool,
    clean: float,
    robust: float,
    scale: float,
    images: bool,
    black_box: bool,
) -> r.ModelResult:
    digest = f"{index + 7:x}c1e94a0b2d5" * 5 + "abcd"
    gone = r.NotApplicable(because="corruptions and perturbation sequences are not part of this version")
    kept = robust / clean

    def scored(outcome: r.Measured) -> r.Measured:
        interval = outcome.interval
        assert interval is not None
        return r.Measured(
            value=100 * outcome.value,
            samples=outcome.samples,
            interval=r.Interval(low=100 * interval.low, high=100 * interval.high, method="Wilson"),
        )

    scores = (
        r.ScoreRecord(dimension="clean", means="right answers on unchanged images", outcome=scored(share(clean))),
        r.ScoreRecord(
            dimension="adversarial",
            means="right answers that survive the worst white-box attack, L∞ 8/255",
            outcome=scored(share(kept, int(clean * N))),
            threat=THREAT,
        ),
        r.ScoreRecord(
            dimension="local margin",
            means="images whose linearised margin exceeds L∞ 8/255",
            outcome=r.Undefined(because="honesty check 15 is raised, which voids the linearised margin")
            if index == 0
            else scored(share(0.4, SHOWN_FISHER)),
            threat=THREAT,
        ),
        r.ScoreRecord(dimension="corruption", means="accuracy kept under corruptions", outcome=gone),
        r.ScoreRecord(dimension="stability", means="answers unchanged along sequences", outcome=gone),
    )
    natural, broken = round((1 - clean) * N), round((clean - robust) * N)
    cascade = r.Cascade(
        arm="white-box",
        threat=THREAT,
        samples=N,
        natural_errors=natural,
        unknown=1,
        survivors=N - natural - broken - 1,
        forward_passes_per_image=41.2,
        backward_passes_per_image=38.9,
        stages=(
            r.AttackStage(attack="FGSM", images_in=N - natural, broken=broken // 2),
            r.AttackStage(attack="PGD, cross-entropy, 20 steps", images_in=N - natural - broken // 2, broken=broken - broken // 2),
        ),
    )
    points = []
    for epsilon in EPSILONS:
        accuracy = clean * math.exp(-math.log(clean / max(robust, 0.02)) * (epsilon * 255 / 8) ** 1.2)
        interval = wilson(accuracy, N)
        points.append(r.CurvePoint(epsilon=epsilon, accuracy=accuracy, low=interval.low, high=interval.high))
    failures = tuple(
        r.FailureExample(
            example_id=f"test-{17 * place + index}",
            label=CLASSES[place % 10],
            clean_confidence=0.97 - 0.01 * place,
            adversarial_label=CLASSES[(place + 3) % 10],
            adversarial_confidence=0.55 + 0.01 * place,
            attack="PGD, cross-entropy, 20 steps" if place % 3 else "Square",
            arm="white-box" if place % 3 else "black-box",
            threat=THREAT,
            norm="linf",
            distance=8 / 255,
            clean_image=f"failures/{index}_{place}_clean.png" if images else None,
            adversarial_image=f"failures/{index}_{place}_adversarial.png" if images else None,
        )
        for place in range(14)
    )
    return r.ModelResult(
        identity=r.ModelIdentity(
            reference=f"models:/{name[:20]}/{version}",
            uri=f"models:/{name}/{version}",
            name=name,
            flavour="pytorch",
            digest=digest,
            classes=10,
            runtime="torch 2.14.1",
            device="cpu",
            outputs="logits",
            input_shape=(1, 8, 8),
            version=version,
            model_id=f"m-{index:032x}",
            run_id=f"{index:032x}",
            description="Reads handwritten digits on forms; a wrong answer is corrected by staff." if index == 0 else None,
            tags={"owner": "forms team", "not_for": "cheques"} if index == 0 else {},
            files={"data/model.pt2": digest, "MLmodel": digest[::-1]},
            input_spec={"layout": "NCHW", "range": "0 to 1"},
        ),
        is_reference=reference,
        metrics=metrics(clean, robust, scale, black_box),
        scores=scores,
        overall=r.OverallScore(value=100 * min(kept, clean), weakest="adversarial", undetermined=("corruption", "stability")),
        checks=checks(raised=index == 0),
        verdict=verdict(clean, robust) if judged and not reference else None,
        curves=(r.Curve(norm="linf", threat=THREAT, arm="white-box", samples=N, points=tuple(points)),),
        cascades=(cascade,),
        classes=tuple(
            r.ClassRow(
                name=label,
                samples=50,
                clean=min(1.0, clean + 0.01 * (k - 5)),
                robust=max(0.0, robust + 0.02 * (k - 5)),
                robust_low=max(0.0, robust + 0.02 * (k - 5) - 0.13),
                robust_high=min(1.0, robust + 0.02 * (k - 5) + 0.13),
                taken_for=CLASSES[(k + 1) % 10],
            )
            for k, label in enumerate(CLASSES)
        ),
        failures=failures,
        failures_total=broken,
        skipped={
            f"worst_case_transfer/{KEY}": "no surrogate model was given",
            **({f"worst_case_white_box/{KEY}": "ONNX Runtime has no backward pass"} if black_box else {}),
        },
        forward_passes=123456,
        backward_passes=65432,
        seconds=41.3,
    )


def sample(
    *,
    models: int = 2,
    reference: bool = False,
    judged: bool = True,
    images: bool = True,
    names: tuple[str, ...] | None = None,
    failures: bool = True,
) -> r.AuditResult:
    """An audit of `models` models; the last one is the reference if there is to be one."""
    built = []
    for index in range(models):
        robust = 0.118 + (0.62 - 0.118) * min(1, index) - 0.04 * max(0, index - 1)
        built.append(
            model(
                index,
                name=names[index] if names else "digits-cnn",
                version=None if names else str(index + 1),
                reference=reference and index == models - 1,
                judged=judged,
                clean=0.972 - 0.014 * index,
                robust=robust,
                scale=1.0 if index == 0 else 0.05 * index,
                images=images,
                black_box=index == 3,
            )
        )
    if not failures:
        from dataclasses import replace

        built = [replace(item, failures=(), failures_total=0) for item in built]
    pairs = [(a, b) for a in range(models) for b in range(a + 1, models)]
    rows = sorted(range(models), key=lambda index: -built[index].cascades[0].survivors)
    rankings = tuple(
        r.Ranking(
            dimension=dimension,
            metric=metric,
            samples=N,
            smallest_detectable=0.031,
            rows=tuple(
                r.RankRow(
                    model=index,
                    rank_low=1 if dimension == "clean" or (place < 2 and models > 2) else place + 1,
                    rank_high=models if dimension == "clean" else 2 if place < 2 and models > 2 else place + 1,
                    value=share(value).value,
                    low=wilson(value, N).low,
                    high=wilson(value, N).high,
                )
                for place, index in enumerate(rows)
                for value in [
                    (
                        built[index].cascades[0].survivors
                        if dimension == "adversarial"
                        else N - built[index].cascades[0].natural_errors
                    )
                    / N
                ]
            ),
            tests=tuple(
                r.PairTest(
                    first=a,
                    second=b,
                    both_right=50,
                    only_first=9,
                    only_second=260 - 10 * b,
                    both_wrong=181,
                    p_value=1e-60,
                    adjusted_p_value=1e-59 if a == 0 and dimension == "adversarial" else 0.21,
                )
                for a, b in pairs
            ),
        )
        for dimension, metric in (("adversarial", f"adversarial_accuracy_white_box/{KEY}"), ("clean", "clean_accuracy"))
    )
    return r.AuditResult(
        id="a-0123456789abcdef",
        created="2026-11-28T14:06:00+00:00",
        profile="quick",
        threats=(THREAT,),
        data=r.DataIdentity(
            reference="builtin:digits",
            source="scikit-learn digits (test data of a test)",
            digest="9f0c3be1a774" * 5,
            sample_digest="11d2aa09c3e1" * 5,
            total=1797,
            samples=N,
            sampling="drawn without replacement, not stratified",
            seed=0,
            image_shape=(1, 8, 8),
            classes=tuple(r.ClassCount(name=label, count=50) for label in CLASSES),
        ),
        models=tuple(built),
        rankings=rankings if models > 1 else (),
        images_kept=images,
        manifest=r.Manifest(
            command="audit run models:/digits-cnn/1 models:/digits-cnn/2 --data builtin:digits --policy release.toml",
            tool_version="0.1.0",
            python="3.11.2",
            platform="Linux x86_64",
            device="cpu",
            threads=2,
            seed=0,
            settings={"block_rows": "32", "samples": "500"},
            versions={"torch": "2.14.1", "mlflow": "3.17.2", "numpy": "2.4.0"},
        ),
    )


def write_folder(folder: Path, result: r.AuditResult, *, table: bool = True, side: int = 8) -> Path:
    """A whole result folder: result.json, examples.parquet and the images of the failures."""
    folder.mkdir(parents=True, exist_ok=True)
    r.write(result, folder)
    rng = np.random.default_rng(0)
    if table:
        columns: dict[str, list[object]] = {
            name: [] for name in ("model", "id", "label", "lambda_max_T", "lambda_max_raw", "margin_linf")
        }
        base = np.exp(rng.normal(0, 1.5, SHOWN_FISHER))
        for index, _ in enumerate(result.models):
            factor = 1.5 if index == 0 else 0.05 * index
            blank = [None] * (N - SHOWN_FISHER)
            columns["model"] += [index] * N
            columns["id"] += [f"test-{k}" for k in range(N)]
            columns["label"] += [k % 10 for k in range(N)]
            columns["lambda_max_T"] += [*(base * factor * np.exp(rng.normal(0, 0.3, SHOWN_FISHER))).tolist(), *blank]
            columns["lambda_max_raw"] += [*(base * factor * 1e-2 * np.exp(rng.normal(0, 1.5, SHOWN_FISHER))).tolist(), *blank]
            margins = rng.gamma(2.0, (4 if index == 0 else 10) / 255, SHOWN_FISHER)
            margins[:3] = 0
            columns["margin_linf"] += [*margins.tolist(), *blank]
        pq.write_table(pa.table(columns), folder / r.TABLE_FILE)
    (folder / r.FAILURES_FOLDER).mkdir(exist_ok=True)
    for item in result.models:
        for failure in item.failures:
            if failure.clean_image is None or failure.adversarial_image is None:
                continue
            clean = (
                (16 * np.abs(np.add.outer(np.arange(side) - side / 2, np.arange(side) - side / 2)) * 8 / side)
                .clip(0, 255)
                .astype(np.uint8)
            )
            change = rng.choice([-8, 8], size=clean.shape)
            Image.fromarray(clean).save(folder / failure.clean_image)
            Image.fromarray((clean.astype(int) + change).clip(0, 255).astype(np.uint8)).save(folder / failure.adversarial_image)
    return folder
