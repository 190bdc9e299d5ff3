"""`python -m audit` and the `audit` command."""

from __future__ import annotations

from audit.cli import cli


def main() -> None:
    """Run the command line and exit with its code."""
    cli(prog_name="audit")


if __name__ == "__main__":
    main()
