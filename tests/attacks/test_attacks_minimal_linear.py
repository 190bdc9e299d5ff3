"""On a linear model the nearest adversarial image inside [0, 1] is known: every attack must come near it, and none below."""

import minimum_norm
import numpy as np
import pytest
import torch
from minimum_norm import ATTACKS, EVERY, WITH_TARGET

from audit.attacks.minimal import Goal, minimal
from audit.attacks.run import Oracle
from audit.vocabulary import Norm

SHAPES = [((1, 4, 4), 3, 33), ((3, 8, 8), 10, 33), ((1, 28, 28), 10, 7), ((1, 4, 4), 2, 1)]


@pytest.mark.parametrize(("shape", "classes", "count"), SHAPES)
@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_distance_beside_the_closed_form(name, norm, shape, classes, count):
    classifier, batch, logits, layer = minimum_norm.linear(shape, classes, count)
    best = minimum_norm.optimum(layer, batch, norm)
    found = minimal(Oracle(classifier, count), batch, logits, ATTACKS[name], norm)
    top = logits.topk(2, dim=1).values
    # Nearer than that, rounding of float32 logits decides.
    clear = (top[:, 0] - top[:, 1] > 1e-2).numpy()
    assert np.isfinite(best).all() and found.found.all() and clear.sum() >= 0.8 * count
    ratio = (found.distance / best)[clear]
    assert ratio.min() > 1 - 1e-4 and np.median(ratio) < 1.03
    # Along L1's few pixels a search sticks with the class it began with.
    assert ratio.max() < (1.4 if norm is Norm.L1 else 1.25)


@pytest.mark.parametrize(("name", "norm"), WITH_TARGET)
def test_the_target_is_reached_near_its_boundary(name, norm):
    classifier, batch, logits, layer = minimum_norm.linear((1, 6, 6), 4, 20)
    aimed = batch.aimed(logits.argsort(dim=1)[:, 1])
    found = minimal(Oracle(classifier, 20), aimed, logits, ATTACKS[name], norm, goal=Goal.TARGET)
    won = classifier.logits(found.images).argmax(dim=1) == aimed.targets
    assert (won.numpy() == found.found).all() and found.found.sum() >= 19
    lower = minimum_norm.optimum(layer, batch, norm, aimed.targets)
    assert (found.distance / lower).min() > 1 - 1e-4 and np.median(found.distance / lower) < 1.2


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_heading_for_a_target_takes_any_error(name, norm):
    classifier, batch, logits, layer = minimum_norm.linear((1, 6, 6), 4, 20)
    aimed = batch.aimed(logits.argsort(dim=1)[:, 1])
    found = minimal(Oracle(classifier, 20), aimed, logits, ATTACKS[name], norm, goal=Goal.ERROR_BY_TARGET)
    answers = classifier.logits(found.images).argmax(dim=1)
    assert found.found.all() and bool((answers != batch.labels).all()) and bool((answers != aimed.targets).any())
    assert (found.distance / minimum_norm.optimum(layer, batch, norm)).min() > 1 - 1e-4


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_a_row_does_not_depend_on_its_neighbours(name, norm):
    classifier, batch, *_ = minimum_norm.linear((1, 6, 6), 5, 33)
    attack = ATTACKS[name]
    together = attack(Oracle(classifier, 33), batch, norm)
    for index in (torch.tensor([17]), torch.tensor([32, 3, 11, 0, 29, 8, 21])):
        assert torch.equal(attack(Oracle(classifier, 33), batch.take(index), norm), together[index])
