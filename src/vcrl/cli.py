"""The command line."""

import sys
from collections.abc import Sequence

from vcrl.commands import asking, looking, making
from vcrl.commands.parsing import parse
from vcrl.commands.words import Command
from vcrl.core.errors import UserError, unknown
from vcrl.core.pages import in_large_pages

COMMANDS: dict[str, type[Command]] = {
    "train": making.Train,
    "eval": looking.Eval,
    "watch": looking.Watch,
    "methods": asking.Methods,
    "tasks": asking.Tasks,
    "check-env": asking.CheckEnv,
    "demo": making.Demo,
    "campaign": making.Campaign,
    "ls": looking.Ls,
    "show": looking.Show,
    "compare": looking.Compare,
    "report": looking.Report,
    "verify": looking.Verify,
    "audit": looking.Audit,
    "doctor": asking.Doctor,
}


def command() -> None:
    """What the shell calls."""
    if sys.argv[1:2] == ["train"]:
        in_large_pages()
    main()


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return
    try:
        if words[0] in ("-V", "--version"):
            import vcrl

            print(f"vcrl {vcrl.__version__}")
            return
        if words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS, "`vcrl --help` lists them.")
        # A user's own environment is usually a module in the folder they stand in.
        sys.path.insert(0, "")
        command, rest = parse(COMMANDS[words[0]], words[0], words[1:])
        command.run(rest)
    except UserError as error:
        print(f"vcrl: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # `vcrl ls | head` has what it wants
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        print("vcrl: interrupted; the same command continues from the last checkpoint", file=sys.stderr)
        raise SystemExit(130) from None


def usage() -> str:
    lines = [
        f"  vcrl {name:10s} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            "value-consistent representation learning from pixels",
            "",
            *lines,
            "",
            "vcrl COMMAND --help says more",
        ]
    )


if __name__ == "__main__":
    command()
