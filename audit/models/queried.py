"""Classifiers that are only asked: an endpoint, a function, a pyfunc model. They give scores or labels, and nothing inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import torch

from audit.errors import MissingCapability, ModelError
from audit.models import RowLoss
from audit.models.answers import Labels, Scores, dense, in_order
from audit.models.blocks import score_blocks
from audit.models.input_spec import InputSpec
from audit.models.probe import outputs_before_a_look, probe
from audit.models.scores import check_scores
from audit.result import ModelIdentity
from audit.vocabulary import Capability

LABELS_ONLY = "the model answers with labels only, without scores"

# (prepared rows, as the input spec makes them) -> the model's answer for each of them.
Ask = Callable[[torch.Tensor], Scores | Labels]


def ordered(ask: Ask, names: Sequence[str], who: str) -> Ask:
    """`ask` with the columns of every answer in one order: that of `names` where they are these, else that of the first answer."""
    columns: tuple[str, ...] | None = None

    def in_one_order(prepared: torch.Tensor) -> Scores | Labels:
        nonlocal columns
        answer = ask(prepared)
        if columns is None and isinstance(answer, Scores):
            columns = tuple(names) if sorted(answer.names) == sorted(names) else answer.names
        return in_order(answer, columns or (), who)

    return in_one_order


def _as_values(answer: Scores | Labels) -> Scores | Labels:
    """The answer of a model that gives one value per image: values that all happen to be whole look like labels."""
    if isinstance(answer, Labels) and all(isinstance(value, int) for value in answer.values):
        return Scores(values=torch.tensor(answer.values, dtype=torch.float32)[:, None])
    return answer


def _is_one_value(answer: Scores | Labels) -> bool:
    return isinstance(answer, Scores) and answer.values.shape[1] == 1


class QueriedClassifier:
    """A model that is asked, behind the `Classifier` contract; build it with `wrap`. Images live on the CPU."""

    def __init__(
        self,
        ask: Ask,
        *,
        identity: ModelIdentity,
        spec: InputSpec,
        rows: int,
        lacks: Mapping[Capability, str],
        classes: Sequence[str],
        one_value: bool,
    ) -> None:
        """`classes` are what labels mean; `one_value` whether each answer is the score of the second of two classes."""
        self._ask = ask
        self._identity = identity
        self._spec = spec
        self._rows = rows
        self._lacks = lacks
        self._names = classes
        self._one_value = one_value
        self._forward_passes = 0

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded."""
        return self._identity

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """Gradients and activations, and scores where it answers with labels."""
        return self._lacks

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self._identity.classes

    @property
    def device(self) -> torch.device:
        """Where images must live."""
        return torch.device("cpu")

    @property
    def forward_passes(self) -> int:
        """Images pushed through the model so far (padding not counted)."""
        return self._forward_passes

    @property
    def backward_passes(self) -> int:
        """Always 0."""
        return 0

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (n, K) of images (n, c, h, w).

        Of a model that lacks SCORES these are one-hot rows: 1.0 for the answered class and 0.0 elsewhere. Only their largest entry
        means something; no probability, loss or margin may be read from them.

        Raises:
            ModelError: the images have another shape than the model was loaded for, or the model's answer cannot be used.
        """
        scores = score_blocks(images, self._identity, self._rows, self._forward)
        self._forward_passes += len(images)
        return scores

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self._lacks[Capability.GRADIENTS])

    def jacobian(self, images: torch.Tensor) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self._lacks[Capability.GRADIENTS])

    def jvp(self, images: torch.Tensor, directions: torch.Tensor) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self._lacks[Capability.GRADIENTS])

    def activations(self, images: torch.Tensor) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self._lacks[Capability.ACTIVATIONS])

    def _forward(self, block: torch.Tensor) -> torch.Tensor:
        who, answer = self._identity.label, self._ask(self._spec.prepare(block))
        answer = _as_values(answer) if self._one_value else answer
        if isinstance(answer, Labels) != (Capability.SCORES in self._lacks):
            raise ModelError(f"{who}: answers now with labels and now with scores; an audit needs one of the two")
        scores = check_scores(dense(answer, self._names, who), len(block), who)
        if scores.shape[1] != self.classes:
            raise ModelError(f"{who}: gives {scores.shape[1]} scores, but gave {self.classes} when it was loaded")
        return scores


def wrap(
    ask: Ask,
    *,
    image_shape: tuple[int, int, int],
    identity: ModelIdentity,
    spec: InputSpec,
    rows: int,
    class_names: Sequence[str],
    inside: str,
) -> QueriedClassifier:
    """Look at a model once, and make a classifier of it.

    Args:
        ask: gives the model's answer for prepared rows.
        image_shape: (c, h, w) of the data.
        identity: what was loaded; classes, sizes, outputs and the probe's cautions are filled in.
        spec: what the images are turned into.
        rows: rows per call.
        class_names: what the labels of a label-only model mean, where the model states no names itself.
        inside: why there are no gradients and activations.

    Raises:
        InputError: the specification does not fit the images.
        ModelError: the model refuses these images, or its answers are neither (n, K) scores nor labels.
    """
    who = identity.label
    spec.check_channels(image_shape[0])
    names = identity.class_names or tuple(class_names)
    ask = ordered(ask, names, who)
    answers: list[Scores | Labels] = []

    def run(images: torch.Tensor) -> torch.Tensor:
        answers.append(ask(spec.prepare(images)))
        if _is_one_value(answers[0]):
            answers[-1] = _as_values(answers[-1])
        return dense(answers[-1], names, who)

    found = probe(run, image_shape, rows, who, places=True)
    first = answers[0]
    lacks = {Capability.GRADIENTS: inside, Capability.ACTIVATIONS: inside}
    if isinstance(first, Labels):
        lacks[Capability.SCORES] = LABELS_ONLY
    elif first.names and set(first.names) == set(names):
        identity = replace(identity, class_names=first.names)
    identity = replace(
        identity,
        classes=found.classes,
        input_shape=image_shape,
        outputs="labels only" if isinstance(first, Labels) else outputs_before_a_look(spec, found),
        input_spec=spec.words(),
        cautions=(*identity.cautions, *found.cautions),
    )
    return QueriedClassifier(
        ask, identity=identity, spec=spec, rows=rows, lacks=lacks, classes=names, one_value=_is_one_value(first)
    )
