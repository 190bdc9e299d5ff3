"""Progress and interrupts."""

from __future__ import annotations

import signal
import sys

import pytest

from audit.cli.progress import listener
from audit.engine.local import Progress

STEP = Progress(model="m", stage="s", done=1, total=2)


@pytest.fixture(autouse=True)
def _as_in_the_foreground():
    """A test run in the background of a shell ignores interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Careless:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_lost_in_a_destructor_is_raised_at_the_next_step():
    with listener("quiet", sys.stdout) as listen:
        listen(STEP)
        careless = Careless()
        del careless
        with pytest.raises(KeyboardInterrupt):
            listen(STEP)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_is_left_alone():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with listener("quiet", sys.stdout) as listen:
        signal.raise_signal(signal.SIGINT)
        listen(STEP)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
