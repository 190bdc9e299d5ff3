"""Every error a user can meet. Each message says what happened, where, and what to do.

AuditError
├── InputError            exit code 2: an option, file, model or data set is not usable as given
│   ├── ModelError        the model cannot be loaded, or does not keep the classifier contract
│   │   └── UntrustedError    loading it would run code, and --trust was not given
│   ├── EndpointError     an endpoint cannot be reached, refuses, or gives no answer that could be read
│   └── DataError         the data set cannot be read, or does not fit the model
├── QueryBudgetSpent      no image may be sent any more; carries the budget
├── OutOfMemory           a compute block does not fit; smaller blocks are tried once
├── MissingCapability     the classifier cannot do what was asked; carries the reason
├── Undefined             a metric has no value on this evidence; carries the reason
└── SinkError             exit code 3: the audit ran, but a sink did not take the result
"""

from __future__ import annotations


class AuditError(Exception):
    """Base of the project's own errors; `str(error)` is one sentence for the user."""


class InputError(AuditError):
    """An option, file, model or data set is not usable as given."""


class ModelError(InputError):
    """The model cannot be loaded, or does not keep the classifier contract."""


class UntrustedError(ModelError):
    """Loading the model would run code that came with it, and `--trust` was not given."""


class EndpointError(InputError):
    """An endpoint cannot be reached, refuses, or gives no answer that could be read: no fault of the images sent."""


class DataError(InputError):
    """The data set cannot be read, or does not fit the model."""


class QueryBudgetSpent(AuditError):
    """A call would send more images than `--max-queries` allows; it was not made."""


class OutOfMemory(AuditError):
    """A compute block does not fit into memory."""


class MissingCapability(AuditError):
    """The classifier lacks a capability; the message is the reason its loader wrote down."""


class Undefined(AuditError):
    """A metric has no value on this evidence; the message completes "undefined, because ..."."""


class SinkError(AuditError):
    """A sink did not take the result; the result itself is on disk."""
