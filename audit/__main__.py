"""`python -m audit` and the `audit` command."""

from __future__ import annotations

import signal
import sys
from io import TextIOWrapper

from audit.cli import cli


def main() -> None:
    """Run the command line and exit with its code."""
    # A name or a symbol that the terminal's encoding lacks is written as its code, and stops nothing.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A scheduler's or a CI system's stop keeps what was measured, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cli(prog_name="audit")


if __name__ == "__main__":
    main()
