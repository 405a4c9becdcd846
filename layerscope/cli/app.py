"""The command, its sub-commands, each imported when it is used, and the one line that a wrong command line gets."""

import errno
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata

from cyclopts import (
    App,
    ArgumentCollection,
    CoercionError,
    CycloptsError,
    Group,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)
from cyclopts.config import Toml

import layerscope
from layerscope.cli.output import printable
from layerscope.core.errors import LayerscopeError, choices, near, spelled, use_flags
from layerscope.core.removed_options import instead_of

SETTINGS = "layerscope.toml"
BUILT_IN = ("stdlib-docs", "digits")
TRUST = ("--trust-remote-code", "--allow-pickle")
"""The options that let another's code run: a file of defaults may not give them."""
OF_TORCH = re.compile(
    r"PytorchStreamWriter|inline_container\.cc:\d+\] \. unexpected pos"
)
OF_RUST = re.compile(r"\(os error (\d+)\)")
COMMANDS = {
    "See": {
        "demo": "Profile the embedded MiniLM on the docstrings of Python's library: no download, a few minutes.",
        "profile": "Measure every layer of a model over your data in one pass.",
        "inspect": "Show what layerscope finds in a model (blocks, final norm, head) and what a run would cost.",
        "lens": "Show what every layer would predict, token by token, and where predictions settle.",
        "compare": "Compare runs: which layers are alike, where metrics differ, and what training changes.",
    },
    "Choose": {
        "evaluate": "Score every layer of a model and the model as shipped on tasks; every text is embedded once.",
        "scores": "Show published scores by layer, and which metrics predict them.",
        "select": "Choose a layer, or blocks to drop: what it scores, gains and costs, and how far to trust that.",
    },
    "Use": {
        "truncate": "Write a model that ends at a layer or lacks blocks: a standard checkpoint, checked and measured.",
        "train": "Train a model so that every layer can be its last; the result is a standard checkpoint.",
        "exits": "Let easy samples leave early, or early layers draft text, and see what that gains on your machine.",
        "generate": "Generate text at any depth of a language model, and measure its quality by layer.",
        "extract": "Write the states of chosen layers for all your data, in one process or in many.",
        "report": "Write one HTML page about results of any kind; it opens offline.",
    },
    "Papers": {
        "reproduce": "Test the claims of the two papers, figure by figure, and report which held.",
    },
}
"""Each command's summary, the first sentence of its verb's docstring, by the module that has it."""
HIDDEN = ("demo",)
"""Commands that the list of all does not show: `make demo` runs this one."""
START = "layerscope profile minilm --data stdlib-docs"
NAMES = [name for summaries in COMMANDS.values() for name in summaries]


class _Defaults(Toml):
    """The file of defaults, in which every table is that of a command."""

    def __call__(
        self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection
    ) -> None:
        """Give a command the options of its table, and say so; a table of no command is refused, and so is trust.

        The file may be another's: it lies in whatever folder the command runs in, such as a
        repository just cloned.
        """
        for name in self.config:
            if name not in NAMES:
                raise LayerscopeError(
                    f"{SETTINGS} has {name!r}, which is not a command{choices(name, NAMES)}"
                )
        super().__call__(app, commands, arguments)
        sources = {
            each.name: {token.source for token in each.tokens} for each in arguments
        }
        taken = [flag for flag, of in sources.items() if self.source in of]
        for flag in taken:
            if flag in TRUST:
                name = flag.removeprefix("--").replace("-", "_")
                raise LayerscopeError(
                    f"{self.source} sets {name}, which no file may: delete it there, and give {flag} yourself"
                )
        if taken and os.environ.get("RANK", "0") == "0":
            print(
                f"defaults from {printable(self.source)}: {', '.join(taken)}",
                file=sys.stderr,
            )


def versions(*, verbose: bool) -> Iterator[str]:
    """Yield the lines of `--version`; with `--verbose` the system's, Python's and those of the libraries too."""
    yield f"layerscope {layerscope.__version__}"
    if verbose:
        yield f"{platform.platform()}, {os.cpu_count()} cores"
        yield f"Python {platform.python_version()}"
        lines = [
            line
            for line in metadata.requires("layerscope") or ()
            if '"dev"' not in line
        ]
        needed = dict.fromkeys(re.split(r"[^\w.-]", line)[0] for line in lines)
        for name in (name for name in needed if name != "layerscope"):
            with suppress(metadata.PackageNotFoundError):
                yield f"{name} {metadata.version(name)}"


app = App(
    name="layerscope",
    help="See what every layer of a model knows, find the layer that serves you best, and use it.",
    help_epilogue=f"Start here: {START}, then layerscope profile MODEL --data FILE.\n"
    f"To set your own defaults, give each command a table in {SETTINGS}, such as [profile] with samples = 5000.",
    help_format="plaintext",
    version=lambda: "\n".join(versions(verbose="--verbose" in sys.argv)),
    config=_Defaults(SETTINGS),
    group_commands=Group("Options", sort_key=len(COMMANDS)),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
for _rank, (_title, _summaries) in enumerate(COMMANDS.items()):
    _group = Group(_title, sort_key=_rank)
    for _row, (_name, _summary) in enumerate(_summaries.items()):
        app.command(
            f"layerscope.cli.{_title.lower()}:{_name}",
            name=_name,
            help=_summary,
            group=_group,
            sort_key=_row,
            show=_name not in HIDDEN,
        )
app.register_install_completion_command(help="Install completion for your shell.")


def explained(error: CycloptsError) -> str:
    """Return the line on an error of the parser, with the near name and the mend."""
    chain = error.command_chain or ()
    command, options = " ".join(("layerscope", *chain)), _options(chain)
    word = next(iter(error.unused_tokens or []), "")
    if isinstance(error, UnknownOptionError):
        return _unknown_option(error, command, options)
    if isinstance(error, UnknownCommandError):
        if mend := instead_of("", word):
            return f"command {word} is gone: {mend}"
        if word.startswith("-"):
            return _does_not_exist(f"option {word}", near(word, options), command)
        return _does_not_exist(f"command {word!r}", near(word, NAMES), command)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _missing(error.argument.name, command, options)
    if isinstance(error, UnusedCliTokensError):
        hint = _meant(word, options, command) or ": put texts with spaces in quotes"
        return f"{word!r} is one word too many for {command}{hint}"
    if (
        isinstance(error, CoercionError)
        and error.token is not None
        and error.token.keyword
    ):
        return (
            f"option {error.token.keyword} takes no value: {command} --help shows how"
        )
    reason = str(error).strip().rstrip(".")
    if type(error) is CycloptsError:  # of the file of defaults
        return f"{SETTINGS} cannot be used ({reason}): fix it, or delete it"
    return f"{reason}: {command} --help shows how"


def _unknown_option(error: UnknownOptionError, command: str, options: list[str]) -> str:
    """Return the line on an option that does not exist, or is gone, typed or from the file of defaults."""
    word = str(error.token.keyword or error.token.value)
    name = word.strip("-[]")
    if mend := instead_of(
        command.removeprefix("layerscope").strip(), name.replace("-", "_")
    ):
        use_flags(options)
        return spelled(f"option {word} is gone: {mend}")
    if error.token.source not in ("", "cli"):
        what = f"{error.token.source} has {name!r}, which is not an option of {command}"
        return f"{what}: {command} --help lists them"
    if not word.startswith("-"):
        return _does_not_exist(f"command {word!r}", near(word, NAMES), command)
    return _does_not_exist(f"option {word}", near(word, options), command)


def _does_not_exist(what: str, hint: str, command: str) -> str:
    every = f"{command} --help lists them"
    return (
        f"{what} does not exist{hint} ({every})"
        if hint
        else f"{what} does not exist: {every}"
    )


def _missing(name: str, command: str, options: list[str]) -> str:
    """Return the line on an option without a value, or on an option or argument that is needed."""
    if not name.startswith("-"):
        noun = name.lower().partition("_or_")[0].removesuffix("s")
        model = "gpt2" if command.endswith("generate") else "minilm"
        example = {"model": model, "run": "runs/demo", "score": "scores.csv"}.get(
            noun, name
        )
        what = "scores" if noun == "score" else f"a {noun}"
        return f"{command} needs {what}, such as {command} {example}"
    if name in sys.argv:
        return f"option {name} needs a value: {command} --help shows which"
    # data without the option's name, as in `train MODEL FILE`
    for word in sys.argv[3:4]:
        hint = "" if word.startswith("-") else _meant(word, options, command)
        if hint:
            return f"{word!r} is one word too many for {command}{hint}"
    return f"{command} needs {name}: {command} --help shows an example"


def _options(chain: Sequence[str]) -> list[str]:
    """Return the options of a command, or those of layerscope itself."""
    command = app[chain[0]] if chain else app
    arguments = command.assemble_argument_collection() if chain else ()
    names = [name for argument in arguments for name in argument.names]
    return [*names, *command.help_flags, *command.version_flags]


def _meant(word: str, options: list[str], command: str) -> str:
    """Return the option that a file, a data set, a number or a text was meant for; empty where it may be any."""
    is_text = " " in word
    if word.isdecimal():
        meant = ["--layer"]
    elif is_text:
        meant = ["--prompt"] if command.endswith(("lens", "generate")) else []
    elif "/" in word or "." in word or word.startswith("hf:") or word in BUILT_IN:
        meant = ["--data", "--train"]
    else:
        meant = []
    for option in meant:
        if option in options and option not in sys.argv:
            return f", did you mean {option} {repr(word) if is_text else word}?"
    return ": leave it out" if is_text else ""


def machine(error: Exception) -> str | None:
    """Return the line on an error that is not the program's but the machine's: of its files or its memory."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory: take fewer samples, a smaller --batch-size or a smaller model, then run it again"
    if OF_TORCH.search(str(error)):
        return "a file cannot be written (torch does not say why, as on a full disk): make room, then run it again"
    if not isinstance(error, OSError):  # of another library
        if "No space left on device" in str(error):
            return (
                "no space left on the disk: make room, then run the same command again"
            )
        if (number := OF_RUST.search(str(error))) is None:
            return None
        error = OSError(int(number[1]), os.strerror(int(number[1])))
    if error.strerror is None:
        return None
    named = isinstance(error.filename, (str, bytes))
    what = repr(os.fsdecode(error.filename)) if named else "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{what} cannot be written ({error.strerror}): make room, then run the same command again"
    return f"{what} cannot be used ({error.strerror}): check what is there, then run the same command again"
