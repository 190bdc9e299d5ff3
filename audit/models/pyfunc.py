"""MLflow models of other flavours than ONNX and PyTorch: asked through scikit-learn where that gives scores, else mlflow.pyfunc."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from audit.errors import AuditError, ModelError
from audit.models.answers import Array, read
from audit.models.input_spec import PartialSpec
from audit.models.mlflow_errors import first_line
from audit.models.mlflow_registry import Fetched, explained_loading
from audit.models.own_folder import own_folder
from audit.models.queried import Ask
from audit.models.shapes import times

NOTHING_INSIDE = "a model behind mlflow.pyfunc gives answers and nothing inside"

_DTYPES = {np.dtype(name): name for name in ("float32", "float16", "float64", "uint8")}


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A loaded model: how it is asked, what computes it, what its signature says of the input, and the names of its classes."""

    ask: Ask
    runtime: str
    declared: PartialSpec
    class_names: tuple[str, ...]


def load(fetched: Fetched) -> Loaded:
    """Load a model that is trusted; its folder must stay for as long as it is asked.

    Raises:
        ModelError: it cannot be loaded; a missing Python module is named with the model's own requirements.
    """
    import mlflow
    from mlflow.models import Model

    who = fetched.identity.label
    with explained_loading(fetched):
        if "sklearn" in Model.load(str(fetched.folder)).flavors:
            import mlflow.sklearn
            import sklearn

            estimator = mlflow.sklearn.load_model(str(fetched.folder))
            probabilities = getattr(estimator, "predict_proba", None)
            if probabilities is not None:
                return Loaded(
                    ask=_ask_estimator(estimator, probabilities, who),
                    runtime=f"scikit-learn {sklearn.__version__}",
                    declared=PartialSpec(),
                    class_names=_class_names(estimator),
                )
        model = mlflow.pyfunc.load_model(str(fetched.folder), suppress_warnings=True)
    schema = model.metadata.get_input_schema()
    arrange, dtype = _arranged(schema, who)
    name = _DTYPES.get(dtype) if dtype is not None else None
    return Loaded(
        ask=_ask(lambda rows: model.predict(arrange(rows)), who),
        runtime=f"mlflow.pyfunc {mlflow.__version__}",
        declared=PartialSpec(values={"dtype": name}, places={"dtype": "the model's signature"}) if name else PartialSpec(),
        class_names=(),
    )


def _ask(predict: Callable[[Array], object], who: str) -> Ask:
    def ask(prepared: torch.Tensor) -> Any:
        try:
            with own_folder():
                answer = predict(prepared.clone().numpy())
        except AuditError:
            raise
        except Exception as error:  # the model's own code may raise anything
            raise ModelError(
                f"{who}: refuses images of {times(tuple(prepared.shape[1:]))} ({prepared.dtype}): {first_line(error)}; "
                "check the data's shape and the input spec"
            ) from error
        return read(answer, len(prepared), who)

    return ask


def _ask_estimator(estimator: Any, probabilities: Callable[[object], object], who: str) -> Ask:
    """scikit-learn takes rows; one that was fitted on a table wants its column names again."""
    columns = getattr(estimator, "feature_names_in_", None)
    features = getattr(estimator, "n_features_in_", None)

    def predict(rows: Array) -> object:
        flat = rows.reshape(len(rows), -1)
        _check_width(flat.shape[1], features, who)
        if columns is None:
            return probabilities(flat)
        import pandas as pd

        return probabilities(pd.DataFrame(flat, columns=columns))

    return _ask(predict, who)


def _class_names(estimator: Any) -> tuple[str, ...]:
    """The classes of the columns; none where column k is class k anyway."""
    found = getattr(estimator, "classes_", None)
    if not isinstance(found, np.ndarray) or found.ndim != 1:
        return ()
    if found.dtype.kind in "iufb" and np.array_equal(found, np.arange(len(found))):
        return ()
    return tuple(str(value) for value in found)


def _arranged(schema: Any, who: str) -> tuple[Callable[[Array], object], np.dtype[Any] | None]:
    """How rows become what a signature asks for, and the dtype it names.

    Raises:
        ModelError: it asks for several tensors, or for columns that hold no numbers.
    """
    if schema is None:
        return lambda rows: rows, None
    if schema.is_tensor_spec():
        if len(schema.inputs) != 1:
            raise ModelError(f"{who}: its signature takes {len(schema.inputs)} inputs; an audit needs one image input")
        (only,) = schema.inputs
        shape = tuple(int(size) for size in only.shape[1:])
        dtype = np.dtype(only.type)

        def tensor(rows: Array) -> object:
            shaped = _reshaped(rows, shape, who)
            # To the nearest whole number, as with the columns of a table and with uint8.
            shaped = (np.rint(shaped) if dtype.kind in "iu" else shaped).astype(dtype)
            return shaped if only.name is None else {only.name: shaped}

        return tensor, dtype
    types = [kind.to_numpy() if (kind := getattr(column, "type", None)) is not None else None for column in schema.inputs]
    numbers = cast("list[np.dtype[Any]]", [np.dtype(kind) for kind in types if kind is not None])
    if len(numbers) != len(types) or any(kind.kind not in "fiu" for kind in numbers):
        raise ModelError(
            f"{who}: its signature takes columns that hold no numbers; an audit needs one column per value of an image"
        )
    names = schema.input_names() or list(range(len(numbers)))

    def table(rows: Array) -> object:
        import pandas as pd

        flat = rows.reshape(len(rows), -1)
        _check_width(flat.shape[1], len(numbers), who)
        columns = {
            name: (np.rint(flat[:, place]) if kind.kind in "iu" else flat[:, place]).astype(kind)
            for place, (name, kind) in enumerate(zip(names, numbers, strict=True))
        }
        return pd.DataFrame(columns)

    return table, None


def _reshaped(rows: Array, shape: tuple[int, ...], who: str) -> Array:
    """Rows in the shape of a signature, if it differs by the grouping of the axes only."""
    have = rows.shape[1:]
    if len(have) == len(shape) and all(want in (-1, size) for want, size in zip(shape, have, strict=True)):
        return rows
    if -1 in shape or (len(shape) > 1 and tuple(size for size in have if size > 1) != tuple(size for size in shape if size > 1)):
        asked = times(tuple(None if size == -1 else size for size in shape))
        raise ModelError(f"{who}: its signature takes images of {asked}, but the data are {times(have)}; state another layout")
    width = int(np.prod(shape))
    _check_width(int(np.prod(have)), width, who)
    return rows.reshape(len(rows), *shape)


def _check_width(have: int, want: int | None, who: str) -> None:
    if want is not None and have != want:
        raise ModelError(f"{who}: takes {want} values per image, but the data have {have}; use data of that size")
