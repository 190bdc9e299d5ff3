"""What an architecture allows at most: lambda_max(F) <= lambda_max(S) Lip(f)^2 / T^2, with Lip composed module by module.

Our own derivations, in L2 and in logarithms, since deep networks overflow. They hold and are loose, by a factor of 1e3 for a small
CNN and of 1e100 for a transformer: a certificate to be read with its looseness, never a ranking. An unknown module is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from audit.errors import MissingCapability
from audit.evidence import Floats
from audit.fisher import constants
from audit.fisher.constants import Shape
from audit.fisher.spectrum import log_softmax

# Beyond this, a bound says nothing about the value.
VACUOUS_BEYOND = 1e3
# Derivative of each activation at most.
_ACTIVATIONS: Mapping[type[nn.Module], float] = {
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.Tanh, nn.Hardtanh, nn.Softplus, nn.Softsign, nn.Hardsigmoid), 1.0),
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten, nn.ZeroPad2d, nn.LogSigmoid, nn.Softshrink), 1.0),
    nn.Sigmoid: 0.25,
    nn.GELU: 1.13,
    nn.SiLU: 1.10,
}
_TORCHVISION = "torchvision.models."


@dataclass(frozen=True, kw_only=True)
class ArchitectureBound:
    """The natural logarithm of a Lipschitz constant of the logits, in L2."""

    log_lipschitz: float

    def log_lambda_max(self, logits: Floats, temperature: float) -> Floats:
        """The natural logarithm (n,) of what lambda_max(F) cannot exceed at logits (n, K)."""
        return log_information(logits, temperature) + 2 * (self.log_lipschitz - math.log(temperature))


def log_information(logits: Floats, temperature: float) -> Floats:
    """Log min(max 2 p (1 - p), 1 - sum p^2, max p) >= log lambda_max(S), (n,), which is at most log 1/2; finite when saturated.

    >>> round(float(np.exp(log_information(np.zeros((1, 4)), 1.0))[0]), 3)
    0.25
    """
    log_p = log_softmax(logits, temperature)
    p = np.exp(log_p)
    rest = np.where(np.arange(p.shape[1])[None, :] == p.argmax(axis=1)[:, None], 0.0, p)
    # 1 - p of the top class as the sum of the others, which does not cancel.
    others = np.maximum(rest.sum(axis=1), np.finfo(np.float64).tiny)
    complement = np.where(rest == 0.0, others[:, None], 1 - p)
    pairs = (2 * p * complement).max(axis=1)
    squares = (p * complement).sum(axis=1)
    least: Floats = np.log(np.minimum(np.minimum(pairs, squares), p.max(axis=1)))
    return least


def architecture_bound(network: nn.Module, image_shape: tuple[int, ...]) -> ArchitectureBound:
    """The bound of a network in eval mode: VGG, ResNet, DenseNet and ViT as torchvision builds them, plain CNNs and MLPs.

    Args:
        network: images (1, *image_shape) -> logits (1, K).
        image_shape: of one image as the network receives it, mostly (c, h, w).

    Raises:
        MissingCapability: a module is not known, or does something with its input that its class does not say; it is named.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False)).eval()
    >>> _ = nn.init.eye_(network[1].weight), nn.init.eye_(network[3].weight)
    >>> round(architecture_bound(network, (1, 2, 2)).log_lipschitz, 6)
    0.0
    """
    shapes = _input_shapes(network, image_shape)
    return ArchitectureBound(log_lipschitz=_Composer(network, shapes).of(network))


def _input_shapes(network: nn.Module, image_shape: tuple[int, ...]) -> dict[nn.Module, Shape]:
    """The shape, without the batch, of what each module receives."""
    shapes: dict[nn.Module, Shape] = {}

    def note(module: nn.Module, given: tuple[object, ...]) -> None:
        if given and isinstance(given[0], torch.Tensor):
            shapes[module] = tuple(given[0].shape[1:])

    handles = [module.register_forward_pre_hook(note) for module in network.modules()]
    try:
        parameter = next(network.parameters(), torch.zeros(1))
        with torch.no_grad():
            network(torch.zeros(1, *image_shape, dtype=parameter.dtype, device=parameter.device))
    finally:
        for handle in handles:
            handle.remove()
    return shapes


class _Composer:
    """Composes logarithms of constants; `of` dispatches on the class, exactly: a subclass may compute something else.

    Once the class is known to be torchvision's, so are its parts, which torch types as anything.
    """

    def __init__(self, network: nn.Module, shapes: Mapping[nn.Module, Shape]) -> None:
        self._names = {module: name for name, module in network.named_modules()}
        self._shapes = shapes
        self._compound: Mapping[str, Callable[[Any], float]] = {
            "vgg.VGG": lambda m: self.chain(m.features, m.avgpool, m.classifier),
            "resnet.ResNet": lambda m: self.chain(
                *(m.conv1, m.bn1, m.relu, m.maxpool, m.layer1, m.layer2, m.layer3, m.layer4, m.avgpool, m.fc)
            ),
            "resnet.BasicBlock": lambda m: self._residual(m, m.conv1, m.bn1, m.relu, m.conv2, m.bn2),
            "resnet.Bottleneck": lambda m: self._residual(m, m.conv1, m.bn1, m.relu, m.conv2, m.bn2, m.conv3, m.bn3),
            "densenet.DenseNet": self._densenet,
            "densenet._DenseBlock": lambda m: sum(self._concatenated(layer) for layer in m.children()),
            "densenet._Transition": lambda m: self.chain(*m.children()),
            "vision_transformer.VisionTransformer": lambda m: self.chain(m.conv_proj, m.encoder, m.heads),
            "vision_transformer.Encoder": lambda m: self.chain(m.layers, m.ln),
            "vision_transformer.EncoderBlock": self._transformer_block,
            "vision_transformer.MLPBlock": lambda m: self.chain(*m.children()),
            "ops.misc.Conv2dNormActivation": lambda m: self.chain(*m.children()),
        }

    def of(self, module: nn.Module) -> float:
        """The logarithm of the module's Lipschitz constant."""
        kind = type(module)
        if module.training:
            raise self._unknown(module, "is in training mode")
        if kind in _ACTIVATIONS:
            return math.log(_ACTIVATIONS[kind])
        if kind is nn.Sequential:
            return self.chain(*module.children())
        place = f"{kind.__module__}.{kind.__qualname__}"
        name = place.removeprefix(_TORCHVISION).removeprefix("torchvision.")
        if place.startswith("torchvision.") and name in self._compound:
            return self._compound[name](module)
        try:
            constant = constants.of_layer(module, self._shapes.get(module))
        except MissingCapability as error:
            raise self._unknown(module, str(error)) from None
        return math.log(constant) if constant > 0 else -math.inf

    def chain(self, *modules: nn.Module) -> float:
        """One after the other: a product."""
        return sum(self.of(module) for module in modules)

    def _residual(self, block: Any, *branch: nn.Module) -> float:
        """Skip plus branch: a sum."""
        skip = 0.0 if block.downsample is None else self.chain(block.downsample)
        return float(np.logaddexp(skip, self.chain(*branch)))

    def _concatenated(self, layer: Any) -> float:
        """Input beside output, (x, g(x)): sqrt(1 + L^2)."""
        own = self.chain(*(layer.norm1, layer.relu1, layer.conv1, layer.norm2, layer.relu2, layer.conv2))
        return 0.5 * float(np.logaddexp(0.0, 2 * own))

    def _densenet(self, network: Any) -> float:
        """Features, then ReLU and the mean over the picture, which are functions in its forward."""
        features: Iterable[nn.Module] = network.features.children()
        size = self._shapes[network.features.norm5]
        return self.chain(*features, network.classifier) - 0.5 * math.log(math.prod(size[1:]))

    def _transformer_block(self, block: Any) -> float:
        tokens = self._shapes[block][0]
        attention = constants.log_attention(block.self_attention, block.ln_1, tokens)
        first = float(np.logaddexp(0.0, self.of(block.ln_1) + attention))
        return first + float(np.logaddexp(0.0, self.chain(block.ln_2, block.mlp)))

    def _unknown(self, module: nn.Module, because: str) -> MissingCapability:
        return MissingCapability(
            f"no architecture bound: the module {self._names.get(module, '') or '(the whole model)'} "
            f"({type(module).__module__}.{type(module).__qualname__}) {because}"
        )
