"""Models behind an endpoint. No weights come into this process; torch only holds the arrays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from audit.models.endpoint_http import BatchTooLarge, Connection
from audit.models.endpoint_protocols import scoring_server, v2_server
from audit.models.endpoint_secrets import headers_from_environment
from audit.models.input_spec import PartialSpec
from audit.models.limits import Meter, QueryLimits
from audit.models.probe import noise
from audit.models.queried import QueriedClassifier, wrap
from audit.models.ref import ModelRef, RefKind
from audit.models.shapes import check_declared
from audit.result import ModelIdentity
from audit.text import printable, redact

NOTHING_INSIDE = "the model is behind an endpoint, which gives answers and nothing inside"
CAUTION = (
    "The model is behind an endpoint: no digest proves its weights, and it may be replaced at any time, also during this audit."
)


def load(
    ref: ModelRef,
    *,
    image_shape: tuple[int, int, int],
    stated: PartialSpec,
    block_rows: int,
    class_names: Sequence[str],
    limits: QueryLimits,
) -> QueriedClassifier:
    """Ask what the endpoint says of itself, find out how it takes images, and look at it once.

    Args:
        ref: a scoring server or a v2 server.
        image_shape: (c, h, w) of the data.
        stated: what the user stated of the input.
        block_rows: rows per call, unless the model fixes them; halved while the server takes no request of that size.
        class_names: of the data, for an endpoint that answers with labels.
        limits: what the user allows.

    Raises:
        InputError: a secret or the specification cannot be used.
        EndpointError: the endpoint cannot be reached, refuses, or gives no answer that could be read.
        ModelError: it refuses these images, or its answers are neither scores nor labels.
        QueryBudgetSpent: looking at it would take more images than allowed.
    """
    url = ref.url or ""
    name = _name(ref)
    connection = Connection(name, headers_from_environment(), Meter(limits, name))
    service = (v2_server if ref.kind is RefKind.V2_SERVER else scoring_server)(connection, url)
    spec = stated.over(service.declared).complete()
    check_declared(service.shape, spec, image_shape, name)
    rows = service.rows or block_rows
    while True:
        try:
            ask, form = service.settle(spec.prepare(noise(rows, image_shape)))
            break
        except BatchTooLarge:
            if rows == 1 or service.rows is not None:
                raise
            rows = max(1, rows // 2)
    identity = ModelIdentity(
        reference=ref.reference,
        uri=printable(redact(url)),
        name=name,
        flavour=f"endpoint ({service.protocol})",
        digest=hashlib.sha256(json.dumps([redact(url), service.protocol, service.facts], sort_keys=True).encode()).hexdigest(),
        classes=0,
        runtime=f"{service.runtime}, {rows} images per request as {form}",
        device="remote",
        outputs="",
        input_shape=(),
        opaque=True,
        cautions=(CAUTION,),
    )
    return wrap(
        ask,
        image_shape=image_shape,
        identity=identity,
        spec=spec,
        rows=rows,
        class_names=class_names,
        inside=NOTHING_INSIDE,
    )


def _name(ref: ModelRef) -> str:
    """`name at host:port`; the folder that a scoring server lies in stands for the name."""
    place = urlsplit(ref.url or "")
    inside = place.path.removesuffix("/invocations").strip("/").rpartition("/")[2]
    name = ref.name or inside
    return printable(redact(f"{name} at {place.netloc}" if name else place.netloc), 120)
