"""The torch module behind a classifier, where its scores are that module's logits and nothing else."""

from __future__ import annotations

import torch

from audit.errors import MissingCapability
from audit.models import Classifier
from audit.models.averaged import AveragedClassifier
from audit.models.composed import ComposedClassifier
from audit.models.input_spec import InputSpec
from audit.models.outputs import ResolvedClassifier
from audit.models.torch_classifier import TorchClassifier


def plain_module(classifier: Classifier) -> tuple[torch.nn.Module, InputSpec]:
    """The module, and how images are prepared for it.

    Raises:
        MissingCapability: there is no such module, and why.
    """
    if isinstance(classifier, AveragedClassifier):
        raise MissingCapability("the answers are means over calls of a model that answers at random")
    if isinstance(classifier, ResolvedClassifier):
        if classifier.probabilities:
            raise MissingCapability("the model gives probabilities, not logits")
        return plain_module(classifier.inner)
    if isinstance(classifier, ComposedClassifier) and classifier.alone is not None:
        return plain_module(classifier.alone)
    if not isinstance(classifier, TorchClassifier):
        raise MissingCapability(f"a model run by {classifier.identity.runtime} shows no torch modules")
    network = classifier.network
    if not isinstance(network, torch.nn.Module) or isinstance(network, torch.fx.GraphModule | torch.jit.ScriptModule):
        raise MissingCapability(f"an exported program shows no torch modules, only operations ({type(network).__qualname__})")
    return network, classifier.spec
