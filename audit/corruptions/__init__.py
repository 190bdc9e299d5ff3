"""Natural corruptions: the 19 kinds of ImageNet-C at five severities, batched, at any image size, on the images' device.

`kinds.corrupted` gives the severities of a batch one after the other; `kinds.KINDS` is the table of the kinds, each a small
function in the file of its family. What an image becomes depends on its pixels, the seed, its id, kind and severity, and on
nothing beside it: the same in any chunk, order and process.
"""
