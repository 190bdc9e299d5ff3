"""Data of MLflow runs, from a store made here."""

from __future__ import annotations

import gc
from pathlib import Path

import mlflow
import mlflow.data
import numpy as np
import pytest
from mlflow.data.http_dataset_source import HTTPDatasetSource
from PIL import Image

from audit import data
from audit.errors import DataError

IMAGES = np.arange(32, dtype=np.uint8).reshape(2, 4, 4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A SQLite store and its runs by name."""
    root = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{root / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("data", artifact_location=(root / "artefacts").as_uri())
    made = root / "made"
    (made / "folder" / "cat").mkdir(parents=True)
    Image.fromarray(IMAGES[0]).save(made / "folder" / "cat" / "a.png")
    (made / "folder" / "set.csv").write_text("path,label\ncat/a.png,3\n")
    (made / "folder" / "outside.csv").write_text("path,label\n../../secret.png,3\n")
    (made / "pair").mkdir()
    np.save(made / "pair" / "images.npy", IMAGES)
    np.save(made / "pair" / "labels.npy", [1, 0])
    np.savez(made / "x 1.npz", x=IMAGES, y=[0, 1], x_train=IMAGES, y_train=[2, 2])
    (made / "model").mkdir()
    (made / "model" / "weights.bin").write_bytes(b"x")
    runs = {"artefacts": client.create_run(experiment).info.run_id, "empty": client.create_run(experiment).info.run_id}
    client.log_artifacts(runs["artefacts"], str(made))

    features = np.zeros((2, 3))
    elsewhere = {
        "local": mlflow.data.from_numpy(features, source=str(made / "x 1.npz"), name="local"),
        "uri": mlflow.data.from_numpy(features, source=(made / "x 1.npz").as_uri(), name="uri"),
        "gone": mlflow.data.from_numpy(features, source=str(root / "gone.npz"), name="gone"),
        "code": mlflow.data.from_numpy(features, name="code"),
        "web": mlflow.data.from_numpy(features, source=HTTPDatasetSource("https://ann:pw@host/x.npz"), name="web"),
    }
    for name, entries in {**{name: [name] for name in elsewhere}, "two": ["local", "code"]}.items():
        runs[name] = client.create_run(experiment).info.run_id
        inputs = [mlflow.entities.DatasetInput(dataset=elsewhere[entry]._to_mlflow_entity(), tags=[]) for entry in entries]
        client.log_inputs(runs[name], inputs)
    return uri, runs


def load(store: tuple[str, dict[str, str]], run: str, rest: str) -> data.Dataset:
    return data.load(f"runs:/{store[1].get(run, run)}{rest}", tracking_uri=store[0])


def test_files_and_folders_of_a_run(store: tuple[str, dict[str, str]]) -> None:
    folder = load(store, "artefacts", "/folder")
    assert folder.ids.tolist() == ["cat/a.png"]
    np.testing.assert_allclose(folder.images([0])[0, 0] * 255, IMAGES[0], atol=1e-4)
    assert folder.reference == f"runs:/{store[1]['artefacts']}/folder"
    assert folder.source.startswith(f"MLflow run {store[1]['artefacts']}, artefact folder: folder of 1 class folders")
    assert load(store, "artefacts", "/x 1.npz#train").labels.tolist() == [2, 2]
    assert load(store, "artefacts", "/folder/set.csv").labels.tolist() == [3]
    for place in ("/pair", "/pair/images.npy", "/pair/"):
        assert load(store, "artefacts", place).labels.tolist() == [1, 0]


def test_the_digest_is_that_of_the_content(store: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    Image.fromarray(IMAGES[0]).save(tmp_path / "cat" / "a.png")
    assert load(store, "artefacts", "/folder").digest == data.load(str(tmp_path)).digest


def test_the_downloaded_copy_lives_as_long_as_the_data(store: tuple[str, dict[str, str]]) -> None:
    dataset = load(store, "artefacts", "/folder")
    folder = dataset.folder  # type: ignore[attr-defined]
    gc.collect()
    assert folder.exists()
    del dataset
    gc.collect()
    assert not folder.exists()


def test_the_local_source_of_a_logged_dataset(store: tuple[str, dict[str, str]]) -> None:
    for name in ("local", "uri"):
        dataset = load(store, name, "#dataset")
        assert dataset.labels.tolist() == [0, 1]
        assert f"dataset '{name}' of run {store[1][name]}, logged with MLflow digest" in dataset.source
    assert load(store, "local", "#dataset,train").labels.tolist() == [2, 2]
    assert load(store, "two", "#dataset=local").labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("run", "rest", "sentence"),
    [
        ("0" * 32, "/x", "there is no run"),
        ("no run id", "/x", "there is no run"),
        ("artefacts", "/photos", "has no artefact 'photos'; there is folder, model, pair, x 1.npz"),
        ("artefacts", "/folder/dog", "has no artefact 'folder/dog'; there is folder/cat"),
        ("artefacts", "/folder/../../x", "no place in MLflow"),
        ("artefacts", "/folder/outside.csv", "there is no image|not among its files"),
        ("artefacts", "/model", "folder 'model' holds no class folders"),
        ("artefacts", "/model/weights.bin", "no known data format"),
        ("empty", "/x", "has no artefact 'x'; there is nothing"),
        ("empty", "", "has no files at its top"),
        ("empty", "#dataset", "no logged dataset"),
        ("local", "#dataset=other", "no dataset called 'other'; it has local"),
        ("two", "#dataset", r"several datasets \((local, code|code, local)\); name one with #dataset=NAME"),
        ("gone", "#dataset", "came from '.*gone.npz', which cannot be read on this machine"),
        ("code", "#dataset", "was made by code .*save the images and give them by path"),
        ("web", "#dataset", r"source of type http 'https://…@host/x\.npz', which is not read; download it"),
        ("", "", "no place in MLflow"),
    ],
)
def test_what_is_not_there(store: tuple[str, dict[str, str]], run: str, rest: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        load(store, run, rest)
    assert "\n" not in str(caught.value)
    assert "audit-data-" not in str(caught.value)


def test_a_manifest_cannot_reach_out_of_its_artefact(store: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    Image.fromarray(IMAGES[0]).save(tmp_path / "secret.png")
    client = mlflow.MlflowClient(tracking_uri=store[0])
    (tmp_path / "set.csv").write_text(f"path,label\n{tmp_path / 'secret.png'},3\n")
    client.log_artifact(store[1]["artefacts"], str(tmp_path / "set.csv"), "escape")
    with pytest.raises(DataError, match=r"secret\.png', which is not among its files"):
        load(store, "artefacts", "/escape/set.csv")


def test_no_store_and_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(DataError, match=r"there is no MLflow store at sqlite:///nowhere\.db.*--tracking-uri"):
        data.load("runs:/abc/x", tracking_uri="sqlite:///nowhere.db")
    assert not (tmp_path / "nowhere.db").exists()
    for ref in ("runs:/abc/x", "mlflow-artifacts:/a/x"):
        with pytest.raises(DataError, match=r"the MLflow server http://…@127\.0\.0\.1:9 cannot be reached"):
            data.load(ref, tracking_uri="http://ann:secret@127.0.0.1:9")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("API request failed with error code 401", "wants credentials"),
        ("error code 403 != 200", "denies access"),
        ("boom\nmore", "boom$"),
    ],
)
def test_refusals_of_a_server(monkeypatch: pytest.MonkeyPatch, text: str, sentence: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise mlflow.exceptions.MlflowException(text)

    monkeypatch.setattr(mlflow.MlflowClient, "get_run", refuse)
    with pytest.raises(DataError, match=sentence):
        data.load("runs:/abc/x", tracking_uri="http://127.0.0.1:9")
