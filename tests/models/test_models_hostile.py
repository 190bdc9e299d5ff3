"""Models and data made to do harm. Through the command line: one sentence, exit code 2, and nothing of theirs has run.

Everything that would run writes the same file, the canary; no test may find it.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import mlflow
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from small_models import Payload, Small, Store, hostile_copy, images, open_model, rewritten, upload

from audit.cli import cli
from audit.models import mlmodel, pt2_archive

Change = Callable[[Path, Path], None]


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Images and labels that fit the store's models."""
    path = tmp_path / "data.npz"
    pixels = (images(20).permute(0, 2, 3, 1).numpy() * 255).astype(np.uint8)
    np.savez(path, images=pixels, labels=np.arange(20) % 5)
    return path


def audit(store: Store, model: str, data: Path, *more: object) -> str:
    """The one sentence that the command line says."""
    arguments = ["run", model, "--data", data, "--tracking-uri", store.uri, "--no-mlflow", "--no-pdf", "--out", "out", *more]
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    (sentence,) = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    assert not Path("out", "result.json").exists()
    return sentence


def in_mlmodel(old: str, new: str) -> Change:
    def change(folder: Path, _: Path) -> None:
        text = (folder / "MLmodel").read_text()
        assert old in text
        (folder / "MLmodel").write_text(text.replace(old, new, 1))

    return change


def written(text: str) -> Change:
    return lambda folder, _: (folder / "MLmodel").write_text(text) and None


def shadow(folder: Path, canary: Path) -> None:
    """A module of the standard library, and one that MLflow imports late, in the model's own code folder."""
    (folder / "code").mkdir()
    for name in ("colorsys", "audit", "imghdr"):
        (folder / "code" / f"{name}.py").write_text(f"open({str(canary)!r}, 'w').close()")
    in_mlmodel("code: null", "code: code")(folder, canary)


def script(folder: Path, canary: Path) -> None:
    (folder / "model.py").write_text(f"open({str(canary)!r}, 'w').close()")
    (folder / "MLmodel").write_text((folder / "MLmodel").read_text() + "\nmodel_code_path: model.py\n")


def loader(folder: Path, canary: Path) -> None:
    Path("evil_loader.py").write_text(f"open({str(canary)!r}, 'w').close()")
    in_mlmodel("loader_module: mlflow.pytorch", "loader_module: evil_loader")(folder, canary)


def torch_pickle(folder: Path, canary: Path) -> None:
    torch.save(Payload(canary), folder / "data" / "model.pth")
    (folder / "data" / "pickle_module_info.txt").write_text("pickle")


def saved_payload(canary: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Payload(canary), buffer)
    return buffer.getvalue()


def archive(change: Callable[[str, bytes, Path], bytes | None], extra: Callable[[Path], dict[str, bytes]] | None = None) -> Change:
    """Rewrite the entries of model.pt2: (name, content, canary) -> the new content, None to drop it."""

    def apply(folder: Path, canary: Path) -> None:
        path = folder / "data" / "model.pt2"
        original = io.BytesIO(path.read_bytes())
        with zipfile.ZipFile(original) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for info in old.infolist():
                content = change(info.filename, old.read(info), canary)
                if content is not None:
                    new.writestr(info.filename, content)
            root = old.namelist()[0].partition("/")[0]
            for name, content in (extra(canary) if extra else {}).items():
                new.writestr(name.replace("ROOT", root), content)

    return apply


def same(_name: str, content: bytes, _canary: Path) -> bytes:
    return content


def pickled_inputs(name: str, content: bytes, canary: Path) -> bytes:
    return saved_payload(canary) if "sample_inputs" in name else content


def pickled_weight(name: str, content: bytes, canary: Path) -> bytes:
    if name.endswith("model_weights_config.json"):
        config = json.loads(content)
        next(iter(config["config"].values()))["use_pickle"] = True
        return json.dumps(config).encode()
    return saved_payload(canary) if name.endswith("/weight_0") else content


def weight_named_twice(name: str, content: bytes, canary: Path) -> bytes:
    """Once as plain bytes, and once more as a pickle."""
    if name.endswith("model_weights_config.json"):
        config = json.loads(content)
        config["config"]["again"] = {**next(iter(config["config"].values())), "use_pickle": True}
        return json.dumps(config).encode()
    return saved_payload(canary) if name.endswith("/weight_0") else content


def pickled_constant(name: str, content: bytes, canary: Path) -> bytes:
    if name.endswith("model_constants_config.json"):
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        return json.dumps({"config": {"object": entry}}).encode()
    return content


def guard(folder: Path, canary: Path) -> None:
    path = folder / "data" / "model.pt2"
    copy = path.rename(folder / "copy.pt2")
    evil = f"__import__('pathlib').Path({str(canary)!r}).write_text('x') > 0"
    rewritten(copy, path, lambda graph: graph.update(guards_code=[evil]))
    copy.unlink()


def zeros(name: str, content: bytes, _: Path) -> bytes:
    return b'{"a": "' + b"0" * 300_000_000 + b'"}' if "/models/" in name else content


PT2: list[tuple[str, Change, str]] = [
    ("code paths that shadow the standard library", shadow, "the Python files in code/"),
    ("a model from code", script, r"the script model\.py \(model from code\)"),
    ("a loader module", loader, "the loader module evil_loader"),
    ("a pickle beside the program", torch_pickle, r"the pickle model\.pth"),
    ("a pickle in the sample inputs", archive(pickled_inputs), r"the pickle data/sample_inputs/model\.pt in model\.pt2"),
    ("a pickle among the weights", archive(pickled_weight), r"the pickle data/weights/weight_0 in model\.pt2"),
    ("a weight that is a pickle as well", archive(weight_named_twice), r"the pickle data/weights/weight_0 in model\.pt2"),
    (
        "a pickled object among the constants",
        archive(pickled_constant, lambda canary: {"ROOT/data/constants/opaque_obj_0": pickle.dumps(Payload(canary))}),
        r"the pickle data/constants/opaque_obj_0 in model\.pt2",
    ),
    (
        "a compiled part",
        archive(same, lambda _: {"ROOT/data/aotinductor/model/evil.so": b"\x7fELF"}),
        r"holds .*aotinductor/model/evil\.so, which is no part of a plain exported program",
    ),
    (
        "a name that leaves the archive",
        archive(same, lambda _: {"ROOT/extra/../../../evil.py": b""}),
        r"holds .*evil\.py, which is no part",
    ),
    ("a guard that is Python", guard, "a guard is the Python expression"),
    ("an archive that unpacks to a thousand times its size", archive(zeros), r"has 0\.\d+ MB and would unpack to 300 MB"),
    (
        "a data folder elsewhere",
        in_mlmodel("model_data: data", "model_data: ../../../../../../etc"),
        "lies outside the model's folder",
    ),
    ("a data folder by its full path", in_mlmodel("model_data: data", "model_data: /etc"), "lies outside the model's folder"),
    ("a Python object in the description", written("a: !!python/object/apply:os.system ['true']"), "MLmodel file cannot be read"),
    (
        "a Python object in the metadata",
        in_mlmodel("flavors:", "metadata: {note: !!python/name:os.system }\nflavors:"),
        "MLmodel file cannot be read",
    ),
]


@pytest.mark.parametrize(("change", "says"), [case[1:] for case in PT2], ids=[case[0] for case in PT2])
def test_a_hostile_program_is_refused(store: Store, tmp_path: Path, data: Path, canary: Path, change: Change, says: str) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    change(folder, canary)
    sentence = audit(store, upload(store, run_id, folder), data)
    assert re.search(says, sentence), sentence
    assert not canary.exists()


def test_the_payloads_are_real(tmp_path: Path, canary: Path) -> None:
    """Each of the three ways in which the set's pickles are stored does run when it is loaded carelessly."""
    for load in (
        lambda: pickle.loads(pickle.dumps(Payload(canary))),
        lambda: torch.load(io.BytesIO(saved_payload(canary)), weights_only=False),
        lambda: np.load(object_array(tmp_path, canary), allow_pickle=True)["labels"],
    ):
        load()
        assert canary.exists()
        canary.unlink()


BOMBS = {
    "aliases": "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
    "merges": "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)),
    "itself": "a: &a [*a]\n",
    "depth": "[" * 5000,
    "size": "a: " + "x" * (mlmodel.MOST_BYTES + 1),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_description_that_unfolds(store: Store, tmp_path: Path, data: Path, kind: str) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    (folder / "MLmodel").write_text(BOMBS[kind])
    sentence = audit(store, upload(store, run_id, folder), data)
    assert "MLmodel file unfolds" in sentence or "MLmodel file cannot be read" in sentence or "MLmodel file has 4.19 MB" in sentence


def test_an_archive_of_very_many_entries(
    store: Store, tmp_path: Path, data: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pt2_archive, "MOST_ENTRIES", 50)
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    archive(same, lambda _: {f"ROOT/extra/{i}": b"" for i in range(50)})(folder, canary)
    assert "entries, more than any exported program" in audit(store, upload(store, run_id, folder), data)


# ONNX


def external(location: str) -> Change:
    def change(folder: Path, _: Path) -> None:
        path = folder / "model.onnx"
        model = onnx.load(path)
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = tensor.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        path.write_bytes(model.SerializeToString())

    return change


def description_elsewhere(folder: Path, canary: Path) -> None:
    in_mlmodel("data: model.onnx", "data: ../../../../../../../etc/passwd")(folder, canary)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (external("../../../../../../../../etc/passwd"), "'../../../../../../../../etc/passwd' lies outside the model's folder"),
        (external("/etc/passwd"), "'/etc/passwd' lies outside the model's folder"),
        (external(""), "the data file '' is named by the model, but is no file"),
        (description_elsewhere, "lies outside the model's folder"),
    ],
)
def test_a_graph_that_reads_elsewhere(store: Store, tmp_path: Path, data: Path, canary: Path, change: Change, says: str) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "onnx")
    change(folder, canary)
    assert says in audit(store, upload(store, run_id, folder), data)
    copied = folder / "model.onnx"
    if change is not description_elsewhere:
        assert says in audit(store, str(copied), data)


def test_links_that_lead_out_of_the_folder(store: Store, tmp_path: Path, data: Path) -> None:
    """In the artefact store, where MLflow refuses to copy it, and beside a model file."""
    folder, store, run_id = hostile_copy(store, tmp_path, "onnx")
    text = upload(store, run_id, folder)
    stored = Path(mlflow.MlflowClient(tracking_uri=store.uri).get_run(run_id).info.artifact_uri.removeprefix("file://"))
    stored = Path(str(stored).replace("%20", " ")) / "model" / "model.onnx"
    stored.unlink()
    stored.symlink_to("/etc/passwd")
    sentence = audit(store, text, data)
    assert "has no model at 'model'" in sentence
    (folder / "weights").symlink_to("/etc/passwd")
    external("weights")(folder, folder)
    assert "'weights' lies outside the model's folder" in audit(store, str(folder / "model.onnx"), data)


def test_code_in_an_onnx_graphs_metadata_stays_words(tmp_path: Path, canary: Path, store: Store) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "onnx")
    model = onnx.load(folder / "model.onnx")
    code = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    onnx.helper.set_model_props(
        model, {"names": "{0: " + code + "}", "labels": f"[{code}]", "classes": repr(pickle.dumps(Payload(canary)))}
    )
    onnx.save(model, folder / "model.onnx")
    text = (folder / "MLmodel").read_text()
    (folder / "MLmodel").write_text(f"metadata:\n  note: {json.dumps(repr(pickle.dumps(Payload(canary))))}\n{text}")
    assert open_model(store, upload(store, run_id, folder)).classes == 5
    assert not canary.exists()


# Data


def object_array(tmp_path: Path, canary: Path) -> Path:
    path = tmp_path / "objects.npz"
    labels = np.empty(1, dtype=object)
    labels[0] = Payload(canary)
    np.savez(path, images=np.zeros((1, 8, 8, 3), np.uint8), labels=labels)
    return path


def test_objects_in_an_array_are_not_unpickled(store: Store, tmp_path: Path, canary: Path) -> None:
    assert "objects.npz" in audit(store, "models:/small/1", object_array(tmp_path, canary))
    assert not canary.exists()


# The expected digest


def test_other_files_than_expected_are_not_even_trusted(store: Store, tmp_path: Path, data: Path, canary: Path) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pickle")
    torch_pickle(folder, canary)
    sentence = audit(store, upload(store, run_id, folder), data, "--trust", "--expect-sha256", "0" * 64)
    assert "does not have the expected sha256 0000" in sentence and "nothing was loaded" in sentence
    assert not canary.exists()


def test_a_digest_admits_the_files_it_is_of(store: Store, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(*models: str, expect: tuple[str, ...]) -> tuple[int, str]:
        options = [part for digest in expect for part in ("--expect-sha256", digest)]
        more = ["--allow-chance", "--samples", "8", "--data", str(data), "--tracking-uri", store.uri, *options]
        done = CliRunner().invoke(cli, ["plan", *models, *more])
        return done.exit_code, done.output

    first, second = "models:/small/1", "models:/small/3"
    one, three = (open_model(store, text).identity.digest for text in (first, second))
    assert planned(first, second, expect=(one, f"sha256:{three.upper()}"))[0] == 0
    assert planned(first, second, expect=(one,))[0] == 0
    for models, expect, says in (
        ((first, second), (three, one), f"small, version\u00a01: does not have the expected sha256 {three}"),
        ((first, second), (one, one), f"small, version\u00a03: does not have the expected sha256 {one}"),
        ((first,), (one, three), "was given 2 times for 1 models"),
        ((first,), ("abc",), "'abc' is no sha256"),
    ):
        code, output = planned(*models, expect=expect)
        assert code == 2 and says in output, output
    # Of a model in one file it may be the file's own.
    alone = tmp_path / "alone.onnx"
    torch.onnx.export(Small().eval(), (images(2),), alone, verbose=False, external_data=False, dynamic_shapes=({0: "n"},))
    assert planned(str(alone), expect=(hashlib.sha256(alone.read_bytes()).hexdigest(),))[0] == 0
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)
    assert "the file's is" in planned(str(alone), expect=("0" * 64,))[1]


# In a process of its own


def test_no_module_of_the_models_is_imported(store: Store, tmp_path: Path, data: Path, canary: Path) -> None:
    """In a fresh process, where nothing is cached: the import system is asked for none of the models' files."""
    texts = []
    for number, change in enumerate((shadow, script, torch_pickle)):
        folder, store, run_id = hostile_copy(store, tmp_path / str(number), "pt2")
        change(folder, canary)
        texts.append(upload(store, run_id, folder))
    program = textwrap.dedent("""
        import sys
        from audit.cli import cli

        codes = []
        for text in sys.argv[3:]:
            try:
                cli.main(["run", text, "--data", sys.argv[1], "--tracking-uri", sys.argv[2], "--no-mlflow"], standalone_mode=False)
            except BaseException as error:
                codes.append("would run code" in str(error))
        foreign = [name for name, module in sys.modules.items() if "audit-model-" in str(getattr(module, "__file__", ""))]
        print(codes, foreign, [place for place in sys.path if "audit-model-" in place])
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(data), store.uri, *texts], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stdout.splitlines()[-1] == f"{[True] * 3} [] []", done.stdout + done.stderr
    assert not canary.exists()
