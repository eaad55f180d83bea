"""The one config grammar of all commands: ``--config a.yaml [--config b.yaml]``, then ``--key value``.

Keys are the fields of dataclasses (ours, or a library's own such as TRL's), so a schema is never written twice.
Later wins: files from left to right, then flags. Nothing is guessed: an unknown key is an error that names the
nearest known one, and all errors of one command line are shown together.

    sections = {"": ("trl:GRPOConfig", MyArgs), "search": SearchArgs}      # YAML  search: {top_k: 3}
    config = load_config(argv, sections, prog="rl/train.py", description="...")  # --search.top_k 3
    args, search = config.top(MyArgs), config.section("search")

A schema given as text (``"trl:GRPOConfig"``) is imported only when a command really starts, so that ``--help``
stays under a second. Every command also has ``--config``, ``--dry_run`` and ``--help``.
"""

import atexit
import dataclasses
import difflib
import errno
import importlib
import os
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from autotools.config_values import (
    MISSING,
    check_bounds,
    coerce_file_value,
    coerce_words,
    jsonable,
    load_scalar,
    read_config_file,
    takes_bool,
    type_name,
)
from autotools.errors import AutoToolsError, ConfigError
from autotools.rundir import claimed_folder, release_unused
from autotools.trainer_keys import check_trainer_key

T = TypeVar("T")
Schema = type | str
Sections = dict[str, Schema | tuple[Schema, ...]]
COMMAND_LINE = "command line"
_LAUNCHER_KEYS = {"local_rank"}  # appended by the DeepSpeed launcher; every rank must still see the same config
_HOST_ERRORS = {  # the machine's state, which the user can change, and no defect of ours
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG,
}  # fmt: skip
_FULL_DISK = ("No space left on device", "file write failed", "unexpected pos")  # safetensors; torch's file writer
_SECRET_KEYS = {"hub_token", "push_to_hub_token", "api_key", "password"}  # never written to a run folder


@dataclasses.dataclass(frozen=True)
class _Field:
    """One settable key: the dataclass that has it, its type, its default (MISSING when required)."""

    owner: type
    name: str
    annotation: Any
    default: Any
    help: str

    @classmethod
    def all_of(cls, schema: type) -> list["_Field"]:
        try:
            hints = typing.get_type_hints(schema, include_extras=True)
        except Exception:  # a library's annotation that only resolves for type checkers
            hints = {}
        out = []
        for item in dataclasses.fields(schema):
            if not item.init:
                continue
            default = item.default_factory() if item.default_factory is not MISSING else item.default
            annotation = hints.get(item.name, Any if isinstance(item.type, str) else item.type)
            out.append(cls(schema, item.name, annotation, default, str(item.metadata.get("help", ""))))
        return out


def _import(schema: Schema) -> type:
    if not isinstance(schema, str):
        return schema
    module, _, name = schema.partition(":")
    return getattr(importlib.import_module(module), name)


def _schemas(sections: Sections, name: str) -> tuple[Schema, ...]:
    value = sections.get(name, ())
    return value if isinstance(value, tuple) else (value,)


class Config:
    """What a command was told. Dataclasses are built from the explicitly set keys, their own defaults fill the rest."""

    def __init__(self, keys: "_Keys", values: dict[str, Any], *, dry_run: bool, files: list[str]) -> None:
        self._keys, self._values = keys, values
        self._built: dict[tuple[str, type], Any] = {}
        self.dry_run = dry_run
        self.files = files

    def _build(self, section: str, schema: type, defaults: dict[str, Any]) -> Any:
        if not defaults and (section, schema) in self._built:
            return self._built[section, schema]
        prefix = f"{section}." if section else ""
        names = [field.name for field in dataclasses.fields(schema) if field.init]
        given = {name: self._values[prefix + name] for name in names if prefix + name in self._values}
        try:
            built = schema(**{**defaults, **given})
        except (ValueError, TypeError) as error:
            where = f"section '{section}'" if section else schema.__name__
            raise ConfigError(f"{where}: {' '.join(str(error).split())}") from error
        if not defaults:
            self._built[section, schema] = built
        return built

    def top(self, schema: type[T], **defaults: Any) -> T:
        """The built top-level dataclass ``schema``. ``defaults`` replace the dataclass's own where a key is not set.

        Raises ConfigError if the dataclass refuses the combination of values.
        """
        return self._build("", schema, defaults)

    def section(self, name: str) -> Any:
        """The built dataclass of section ``name``. Raises ConfigError like ``top``."""
        return self._build(name, self._keys.schemas[name][0], {})

    @property
    def explicit(self) -> dict[str, Any]:
        """The keys that files or flags set, as a nested mapping."""
        return _nest(self._values)

    def resolved(self) -> dict[str, Any]:
        """Every key with its value, as JSON types; written to a file it can be given back with ``--config``.

        Values are those before a dataclass derives others in ``__post_init__``: derived pairs may not be set together.
        """
        out = {}
        for key, fields in self._keys.known.items():
            value = self._values.get(key, fields[0].default)
            if value is not MISSING and key.rpartition(".")[2] not in _SECRET_KEYS:
                out[key] = jsonable(value)
        return _nest(out)


def _nest(flat: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, name = key.split(".")
        node = out
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return out


def _flatten(content: dict[str, Any], section_names: set[str], prefix: str = "") -> dict[str, Any]:
    """File content as ``section.key`` -> value; only mappings that are sections (or hold one) are opened."""
    out: dict[str, Any] = {}
    for key, value in content.items():
        full = f"{prefix}{key}".replace("-", "_")
        opens = full in section_names or any(name.startswith(f"{full}.") for name in section_names)
        if opens and (isinstance(value, dict) or value is None):
            out.update(_flatten(value or {}, section_names, f"{full}."))
        else:
            out[full] = value
    return out


def _split_words(argv: Sequence[str], positional: str | None) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Command line -> [(key, words)], stray words. Words before the first flag belong to ``positional``."""
    flags: list[tuple[str, list[str]]] = []
    stray: list[str] = []
    for token in argv:
        if token.startswith("--") and len(token) > 2:
            key, equals, value = token[2:].partition("=")
            flags.append((key.replace("-", "_"), [value] if equals else []))
        elif flags:
            flags[-1][1].append(token)
        elif positional:
            flags.append((positional, [token]))  # further bare words join it
        else:
            stray.append(f"{COMMAND_LINE}: unexpected {token!r}; options are written --key value")
    return flags, stray


class _Keys:
    """Every key a command knows, by its full name (``section.key``)."""

    def __init__(self, sections: Sections) -> None:
        self.schemas = {name: [_import(schema) for schema in _schemas(sections, name)] for name in sections}
        self.known: dict[str, list[_Field]] = {}
        for section, classes in self.schemas.items():
            for field in (field for schema in classes for field in _Field.all_of(schema)):
                self.known.setdefault(f"{section}.{field.name}" if section else field.name, []).append(field)
        self.names = [*self.known, *(name for name in sections if name), "config", "dry_run", "help"]

    def unknown(self, source: str, key: str) -> str:
        """The error line for a key nobody has, with the nearest known one."""
        close = difflib.get_close_matches(key, self.names, n=1, cutoff=0.6)
        if not close:  # perhaps right in itself, but in the wrong section
            close = [name for name in self.names if name.rpartition(".")[2] == key.rpartition(".")[2]][:1]
        hint = f"did you mean '{close[0]}'?" if close else "see --help for the keys"
        return f"{source}: unknown key '{key}'; {hint}"


class _Reader:
    """Collects values and problems from files and flags, in the order in which they win."""

    def __init__(self, keys: _Keys) -> None:
        self.keys = keys
        self.values: dict[str, Any] = {}
        self.given: set[str] = set()  # also those whose value was refused: they are not missing, too
        self.problems: list[str] = []
        self.dry_run = False

    def _put(self, source: str, key: str, given: Any, convert: Callable[[_Field], Any]) -> None:
        if key in self.keys.schemas and key not in self.keys.known:
            inside = [name for name in self.keys.known if name.startswith(f"{key}.")]
            self.problems.append(f"{source}: section '{key}' needs keys (such as {', '.join(inside[:1])}), got {given}")
            return
        if key not in self.keys.known:
            self.problems.append(self.keys.unknown(source, key))
            return
        self.given.add(key)
        try:
            field = self.keys.known[key][0]
            value = convert(field)
            check_bounds(field.name, value)
            check_trainer_key(field.owner.__name__, field.name, value)
            self.values[key] = value
        except ValueError as error:
            self.problems.append(f"{source}: key '{key}': {error}")

    def file(self, path: str) -> None:
        """Take every key of a config file."""
        try:
            entries = _flatten(read_config_file(path), {name for name in self.keys.schemas if name})
        except ConfigError as error:
            self.problems.append(str(error))
            return
        for key, value in entries.items():
            if key == "dry_run":
                self.dry_run = value is True
            elif key not in _LAUNCHER_KEYS:
                self._put(
                    path, key, value, lambda field, v=value: coerce_file_value(v, field.annotation, field.default)
                )

    def flag(self, key: str, words: list[str]) -> None:
        """Take one ``--key words...``."""
        if key == "dry_run":
            self.dry_run = not words or load_scalar(words[0]) is True
        elif key == "config" and not words:
            self.problems.append(f"{COMMAND_LINE}: --config needs a file name")
        elif key != "config" and key not in _LAUNCHER_KEYS:
            given = " ".join(words) or "none"
            self._put(COMMAND_LINE, key, given, lambda field: coerce_words(words, field.annotation, field.default))

    def require(self) -> None:
        """Note every key that has neither a value nor a default."""
        for key, fields in self.keys.known.items():
            if key not in self.given and any(field.default is MISSING for field in fields):
                what = fields[0].help or type_name(fields[0].annotation)
                self.problems.append(f"missing key '{key}' ({what}); pass --{key} or set it in a --config file")


def load_config(
    argv: Sequence[str] | None,
    sections: Sections,
    *,
    prog: str,
    description: str,
    positional: str | None = None,
) -> Config:
    """Read ``argv`` (None: sys.argv) against ``sections``; grammar in the module docstring.

    Key ``""`` of ``sections`` holds the top-level dataclass(es); a key two of them share goes to both. ``positional``
    names a top-level key that takes bare words at the start. Prints help and leaves with 0 on ``--help``.
    Raises ConfigError with one line per problem.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if "--help" in argv or "-h" in argv:
        print(help_text(sections, prog, description, positional))
        raise SystemExit(0)
    reader = _Reader(_Keys(sections))
    flags, stray = _split_words(argv, positional)
    files = [word for key, words in flags if key == "config" for word in words]
    for path in files:
        reader.file(path)
    reader.problems += stray
    for key, words in flags:
        reader.flag(key, words)
    reader.require()
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    config = Config(reader.keys, reader.values, dry_run=reader.dry_run, files=files)
    for section in sections:  # refuse bad combinations at once; a library's schema is built when the entry asks for it
        for schema in _schemas(sections, section):
            if not isinstance(schema, str):
                config._build(section, schema, {})
    return config


def file_problems(path: str, sections: Sections) -> list[str]:
    """What is wrong with one config file by itself (unknown keys, wrong types); missing keys may come from flags."""
    reader = _Reader(_Keys(sections))
    reader.file(path)
    return reader.problems


def help_text(sections: Sections, prog: str, description: str, positional: str | None) -> str:
    """The text of ``--help``: keys by section with type, default and the field's own help. Imports no lazy schema."""
    bare = f" [{positional.upper()}]" if positional else ""
    lines = [f"usage: {prog}{bare} [--config FILE.yaml ...] [--key value ...] [--dry_run]", "", description.strip()]
    for section in sections:
        for schema in _schemas(sections, section):
            title = f"section '{section}' (--{section}.key)" if section else "keys"
            if isinstance(schema, str):
                module, _, name = schema.partition(":")
                lines += ["", f"{title}: every field of {module}.{name}, under its own name"]
                continue
            lines += ["", f"{title} ({schema.__name__}):"]
            for field in _Field.all_of(schema):
                key = f"{section}.{field.name}" if section else field.name
                default = "required" if field.default is MISSING else f"default {jsonable(field.default)!r}"
                flag = "" if takes_bool(field.annotation) else f" {type_name(field.annotation)}"
                lines.append(f"  --{key}{flag}  ({default})")
                if field.help:
                    lines.append(f"        {field.help}")
    lines += ["", "of every command:", "  --config FILE.yaml  (may be repeated; later files win, flags win over files)"]
    lines += ["  --dry_run  (check the configuration, say what would be done, and stop)", "  --help"]
    return "\n".join(lines)


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run an entry point: an AutoToolsError becomes ``error: ...`` and exit code 2, Ctrl-C becomes 130.

    So does a full disk or a folder that may not be written: there a traceback tells a user nothing. A run folder that
    was claimed for nothing is given back.
    """
    code = 1
    try:
        code = _exit_code(main)
    finally:
        if code:
            release_unused()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End one rank of several without the interpreter's clean-up.

    Threads of the communication libraries may still run then: on a loaded machine 1 of 7 two-rank runs ended with
    SIGABRT after all was written, and the launcher calls such a run failed.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _exit_code(main: Callable[[], int | None]) -> int:
    try:
        return main() or 0
    except AutoToolsError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(str(error) or "interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader went away (``| head``): not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        line = _host_problem(error)
        if not line:
            raise
        print(f"error: {line}", file=sys.stderr)
        return 2


def _host_problem(error: Exception) -> str:
    """One line for what is wrong with the machine, naming a file or else the run folder; empty for a defect of ours."""
    folder = claimed_folder()
    if isinstance(error, OSError) and error.errno in _HOST_ERRORS:
        return f"{error.filename or folder or 'cannot write'}: {error.strerror}"
    text = str(error)  # libraries written in other languages have no errno to give
    if folder and any(mark in text for mark in _FULL_DISK):
        return f"{folder}: cannot write, perhaps for want of disk space ({' '.join(text.split())[:200]})"
    return ""
