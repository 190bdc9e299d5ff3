"""The command line: one file per verb, imported only when it is called, so that `audit --help` answers at once.

Exit codes: 0 done, and the gate passed; 1 the gate failed or is undecided, a metric failed, or an inspection leaves the input spec
open; 2 usage or input; 3 the audit ran, but a sink did not take it; 130 interrupted. 1 wins over 3.
"""

from __future__ import annotations

import errno
import importlib

import click

from audit.errors import AuditError, SinkError
from audit.text import printable

VERBS = {
    "run": "Audit models and write, log and render the result.",
    "inspect": "Show what a model is, and find its input spec on data.",
    "plan": "Show what an audit would do, what it would skip and why.",
    "metrics": "List what can be measured, or define one metric.",
    "report": "Render the HTML and PDF report of a result again.",
    "gate": "Judge a finished audit by a policy, for CI.",
    "policy": "Write a policy from a result, or check one.",
    "compare": "Compare audited models on the same examples.",
    "history": "Show how a registered model's numbers moved over its versions.",
    "push": "Log a finished result to MLflow (after a failed log).",
    "doctor": "Check devices, ONNX Runtime, PDF libraries, fonts and MLflow.",
    "demo": "Train, register, audit and rank two small models.",
}


class UserError(click.ClickException):
    """One sentence on stderr and an exit code, no stack trace."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        # click declares the code on the class and reads it from the instance.
        self.exit_code = exit_code  # type: ignore[misc]


class Verbs(click.Group):
    """A group that knows its verbs' names and short help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of a first session."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's file."""
        if cmd_name not in VERBS:
            return None
        found: click.Command = importlib.import_module(f"audit.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse bytes that are no text: no result, report or database could hold them."""
        for text in args:
            if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise UserError(f"the argument {printable(text)!r} is not UTF-8 text; rename the file or folder it names", 2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Turn the project's errors into one sentence and the right exit code."""
        try:
            return super().invoke(ctx)
        except SinkError as error:
            raise UserError(str(error), 3) from error
        except AuditError as error:
            raise UserError(str(error), 2) from error
        except SystemExit as error:
            # Only code from outside calls sys.exit in here, and a model's own must not pass for a finished audit.
            what = f"code of the model or of a library ended the program (sys.exit({error.code!r}))"
            raise UserError(f"{printable(what)}; remove that call", 2) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has gone, as with `| head`; click ends quietly
                raise
            where = f" ({printable(str(error.filename))})" if error.filename else ""
            raise UserError(f"the system refused to read or write{where}: {error.strerror or error}", 2) from error
        except KeyboardInterrupt as error:
            raise UserError("Interrupted before it was done; the same command starts it again.", 130) from error


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mlflow-audit", prog_name="audit")
def cli() -> None:
    """Audit the robustness of registered models.

    Start with `audit demo`, or `audit run models:/NAME/VERSION --data FOLDER`.
    """
