"""`python -m audit` and the `audit` command."""

from __future__ import annotations

import signal

from audit.cli import cli
from audit.cli.output import close_streams, prepare_streams


def main() -> None:
    """Run the command line and exit with its code."""
    prepare_streams()
    # A scheduler's or a CI system's stop keeps what was measured, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cli(prog_name="audit")
    finally:
        close_streams()


if __name__ == "__main__":
    main()
