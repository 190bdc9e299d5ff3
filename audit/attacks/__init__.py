"""Attacks: an attack proposes images, the harness (`run.verify`) clips them, asks the model again, and only then believes.

Every attack is a function over a batch of examples in which no row depends on the others, so that the same example gives the
same numbers in any chunk. Distances and budgets are always in [0, 1] pixel units.
"""
