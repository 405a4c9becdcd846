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
TRUST = ("--trust-remote-code", "--allow-pickle")
"""The options that let another's code run: a file of defaults may not give them."""
OF_TORCH = re.compile(r"PytorchStreamWriter|inline_container\.cc:\d+\] \. unexpected pos")
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
        "merge": "Join the shards of an extraction, check every file, and mark the folder as whole.",
        "report": "Write one HTML page about results of any kind; it opens offline.",
    },
    "Papers": {
        "reproduce": "Test the claims of the two papers, figure by figure, and report which held.",
    },
}
"""Each command's summary, the first sentence of its verb's docstring, by the module that has it."""
NAMES = [name for summaries in COMMANDS.values() for name in summaries]


class _Defaults(Toml):
    """The file of defaults, in which every table is that of a command."""

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Give a command the options of its table, and say so; a table of no command is refused, and so is trust.

        The file may be another's: it lies in whatever folder the command runs in, such as a
        repository just cloned.
        """
        if unknown := next((name for name in self.config if name not in NAMES), None):
            raise LayerscopeError(
                f"{SETTINGS} has {unknown!r}, which is not a command{choices(unknown, NAMES)}"
            )
        super().__call__(app, commands, arguments)
        taken = [
            argument.name
            for argument in arguments
            if any(token.source == self.source for token in argument.tokens)
        ]
        if trust := next((flag for flag in taken if flag in TRUST), None):
            name = trust.removeprefix("--").replace("-", "_")
            raise LayerscopeError(
                f"{self.source} sets {name}, which no file may: delete it there, and give {trust} yourself"
            )
        if taken and os.environ.get("RANK", "0") == "0":
            print(f"defaults from {printable(self.source)}: {', '.join(taken)}", file=sys.stderr)


def versions(*, verbose: bool) -> Iterator[str]:
    """Yield the lines of `--version`; with `--verbose` the system's, Python's and those of the libraries too."""
    yield f"layerscope {layerscope.__version__}"
    if verbose:
        yield f"{platform.platform()}, {os.cpu_count()} cores"
        yield f"Python {platform.python_version()}"
        lines = [line for line in metadata.requires("layerscope") or () if '"dev"' not in line]
        needed = dict.fromkeys(re.split(r"[^\w.-]", line)[0] for line in lines)
        for name in (name for name in needed if name != "layerscope"):
            with suppress(metadata.PackageNotFoundError):
                yield f"{name} {metadata.version(name)}"


app = App(
    name="layerscope",
    help="See what every layer of a model knows, find the layer that serves you best, and use it.",
    help_epilogue=f"Start here: layerscope demo, then layerscope profile MODEL --data FILE.\n"
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
        )
app.register_install_completion_command(help="Install completion for your shell.")


def explained(error: CycloptsError) -> str:
    """Return the line on an error of the parser, with the near name and the mend."""
    chain = error.command_chain or ()
    command, options = " ".join(("layerscope", *chain)), _options(chain)
    word = next(iter(error.unused_tokens or []), "")
    if isinstance(error, UnknownOptionError):
        word = str(error.token.keyword or error.token.value)
        if mend := instead_of(" ".join(chain), word.strip("-[]").replace("-", "_")):
            use_flags(options)
            return spelled(f"option {word} is gone: {mend}")
        if error.token.source not in ("", "cli"):
            name = word.strip("-[]")
            lists = f"{command} --help lists them"
            return (
                f"{error.token.source} has {name!r}, which is not an option of {command}: {lists}"
            )
    if isinstance(error, (UnknownOptionError, UnknownCommandError)):
        what, known = (
            (f"option {word}", options) if word.startswith("-") else (f"command {word!r}", NAMES)
        )
        hint = near(word, known)
        lists = f"{command} --help lists them"
        return f"{what} does not exist{f'{hint} ({lists})' if hint else f': {lists}'}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _missing(error.argument.name, command, options)
    if isinstance(error, UnusedCliTokensError):
        hint = _meant(word, options, command) or ": put texts with spaces in quotes"
        return f"{word!r} is one word too many for {command}{hint}"
    if isinstance(error, CoercionError) and error.token is not None and error.token.keyword:
        return f"option {error.token.keyword} takes no value: {command} --help shows how"
    reason = str(error).strip().rstrip(".")
    if type(error) is CycloptsError:  # of the file of defaults
        return f"{SETTINGS} cannot be used ({reason}): fix it, or delete it"
    return f"{reason}: {command} --help shows how"


def _missing(name: str, command: str, options: list[str]) -> str:
    """Return the line on an option without a value, or on an option or argument that is needed."""
    if not name.startswith("-"):
        noun = name.lower().partition("_or_")[0].removesuffix("s")
        model = "gpt2" if command.endswith("generate") else "minilm"
        example = {"model": model, "run": "runs/demo", "score": "scores.csv"}.get(noun, name)
        what = "scores" if noun == "score" else f"a {noun}"
        return f"{command} needs {what}, such as {command} {example}"
    if name in sys.argv:
        return f"option {name} needs a value: {command} --help shows which"
    word = next(
        iter(sys.argv[3:4]), "-"
    )  # data without the option's name, as in `train MODEL FILE`
    if not word.startswith("-") and (hint := _meant(word, options, command)):
        return f"{word!r} is one word too many for {command}{hint}"
    return f"{command} needs {name}: {command} --help shows an example"


def _options(chain: Sequence[str]) -> list[str]:
    """Return the options of a command, or those of layerscope itself."""
    own = app[chain[0]] if chain else app
    arguments = own.assemble_argument_collection() if chain else ()
    return [
        *(name for argument in arguments for name in argument.names),
        *own.help_flags,
        *own.version_flags,
    ]


def _meant(word: str, options: list[str], command: str) -> str:
    """Return the option that a file, a data set, a number or a text was meant for; empty where it may be any."""
    is_data = (
        "/" in word or "." in word or word.startswith("hf:") or word in ("stdlib-docs", "digits")
    )
    is_text = " " in word
    prompt = ("--prompt",) if command.endswith(("lens", "generate")) else ()
    meant = prompt if is_text else ("--data", "--train") if is_data else ()
    meant = ("--layer",) if word.isdecimal() else meant
    option = next((name for name in meant if name in options and name not in sys.argv), None)
    if option:
        return f", did you mean {option} {repr(word) if is_text else word}?"
    return ": leave it out" if is_text else ""


def machine(error: Exception) -> str | None:
    """Return the line on an error that is not the program's but the machine's: of its files or its memory."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory: take fewer samples, a smaller --batch-size or a smaller model, then run it again"
    if OF_TORCH.search(str(error)):
        return "a file cannot be written (torch does not say why, as on a full disk): make room, then run it again"
    if "No space left on device" in str(error) and not isinstance(
        error, OSError
    ):  # of another library
        return "no space left on the disk: make room, then run the same command again"
    if not isinstance(error, OSError) and (found := OF_RUST.search(str(error))):
        error = OSError(int(found[1]), os.strerror(int(found[1])))
    if not isinstance(error, OSError) or error.strerror is None:
        return None
    what = (
        repr(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else "a file"
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{what} cannot be written ({error.strerror}): make room, then run the same command again"
    return f"{what} cannot be used ({error.strerror}): check what is there, then run the same command again"
