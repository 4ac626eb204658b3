"""Hostile input for every parser of the product: documents with one field changed, and bytes with small errors.

A test says what an entrance reads and hands ``fuzz`` a strategy. The default run tries ``FEW`` inputs, always the same;
with ``--thorough``, ``MANY`` ($RECONCILER_FUZZ) that differ from run to run: 10,000 of them take more than an hour, and
find what 500 do not. A failure prints the input, and a line that repeats it.
"""

from __future__ import annotations

import copy
import json
import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.core.text import visible

T = TypeVar("T")

FEW, MANY = 24, int(os.environ.get("RECONCILER_FUZZ", "500"))


def _sized(few: int, many: int) -> pytest.MarkDecorator:
    thorough = pytest.param(many, id="many-inputs", marks=pytest.mark.thorough)
    return pytest.mark.parametrize("runs", [pytest.param(few, id="few-inputs"), thorough])


sized, sized_for_commands = _sized(FEW, MANY), _sized(FEW // 4, MANY)
"""For tests that take ``runs``; a whole command takes longer than the function that reads its file."""

LONGEST_S = 5.0
"""Seconds of this thread's CPU that one input may take."""
MOST_KIB = 256 * 1024
"""By how much one input may raise the memory that this process has taken at its most."""
LONGEST_MESSAGE, AS_TYPED = 2_000, 1_000_000
"""Characters: where a file of others is quoted, and where what a user has written himself is."""
GOLDENS = Path(__file__).parents[1] / "golden" / "formats"


def fuzz(runs: int, inputs: st.SearchStrategy[T], claim: Callable[[T], object]) -> None:
    """Try ``claim`` on so many ``inputs``; any exception fails, and so does hunger for memory."""
    limits = settings(
        max_examples=runs,
        derandomize=runs <= FEW,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )

    @limits
    @given(inputs)
    def tried(value: T) -> None:
        before = _peak_kib()
        claim(value)
        assert _peak_kib() - before < MOST_KIB, "this input takes too much memory"

    tried()


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def attempt(
    read: Callable[[], T],
    *codes: ExitCode,
    codec: tuple[type[Exception], ...] = (),
    longest: int = LONGEST_MESSAGE,
) -> T | None:
    """What ``read`` returns; None if it refuses: with a sentence and one of ``codes``, or with a ``codec``'s error."""
    began = time.thread_time()
    found, refused = None, None
    try:
        found = read()
    except (ReconcilerError, *codec) as error:
        refused = error
    assert time.thread_time() - began < LONGEST_S
    if isinstance(refused, ReconcilerError):
        assert refused.exit_code in codes, repr(refused)
        is_sentence(str(refused), longest)
    assert refused is None or str(refused).strip()
    return found


def is_sentence(text: str, longest: int = LONGEST_MESSAGE) -> None:
    assert text.strip()
    assert visible(text) == text
    assert len(text) < longest


# ---------------------------------------------------------------- odd values

NUMBERS = sorted(
    {
        sign * (edge + near)
        for edge in (0, 2**15, 2**31, 2**53, 2**63, 10**18)
        for near in (-1, 0, 1)
        for sign in (-1, 1)
    }
    | {10**30, 253_402_300_800, 253_402_300_799_999 + 1}
)
TEXTS = [
    *("", " ", "\0", "a\0b", "\ud800", "\udfff\udc00", "\udcff", "\x1b[2J", "x\nsigned by ada", "\r", "\x85", "\u2028"),
    *("\u202e", "\u2066", "\u200b", "\ufeff", "é", "e\u0301", "\U0001f600", "\U0010ffff", "x" * 70_000, "٣", "²"),
    *("9" * 5_000,),
    *("../../etc/passwd", "/dev/null", "~", ".", "%00", "%s%n", "{0}", "${HOME}", "file:/etc/passwd", "null", "true"),
    *("0", "-1", "00", "+1", " 1", "1e3", "0x10", "1_000", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00+23:59"),
    *("9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "2026-01-01T00:00:00", "a" * 16, "0" * 32, "f" * 64, "AAAA"),
    *("=",),
    *("earliest", "exact", "exact", "unresolved", "next", "start", "end", "id", "source", "clicks", "events"),
    *("a.events",),
]  # fmt: skip
RAW = [
    *("1e999999", "-1e999999", "1e-999999", "9" * 400, "9" * 5_000, "-" + "9" * 5_000, "0." + "9" * 5_000, "1.0", "-0"),
    *("NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x1F", "tru", "'x'", "undefined", "", "[", "{", "]"),
    *("/**/1",),
    *('"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\x"', '"\t"', '"\n"', '"\u2028"', "[" * 100_000),
    *('{"a":' * 50_000,),
    *("[" * 500 + "]" * 500, "[" * 2_000 + "]" * 2_000, '{"a":' * 500 + "1" + "}" * 500, '{"a":1,"a":2}'),
]  # fmt: skip
"""What no value of Python's is written as."""

_MARK, _AGAIN = "\ue000raw ", "\ue000again"
SURROGATES = st.text(st.characters(), max_size=12)
ODD_TEXTS = st.sampled_from(TEXTS) | SURROGATES
SCALARS = (
    st.sampled_from(NUMBERS) | st.integers() | st.floats() | st.sampled_from([None, True, False, 1.0, -0.0]) | ODD_TEXTS
)
ODD = st.one_of(
    SCALARS,
    SCALARS,
    st.sampled_from(range(len(RAW))).map(lambda number: f"{_MARK}{number}"),
    st.lists(SCALARS, max_size=2),
    st.dictionaries(ODD_TEXTS, SCALARS, max_size=2),
)


# ---------------------------------------------------------------- documents

_YES_OR_NO, _INDENTS = st.booleans(), st.sampled_from([None, 1])
_ONE_IN_FIVE, _ONE_IN_THIRTY = st.integers(0, 4), st.integers(0, 29)
_CHANGES = st.sampled_from([0, 1, 1, 1, 1, 2, 3])
_KINDS = st.sampled_from(["odd", "odd", "odd", "odd", "delete", "wrap", "again", "add", "name", "other"])
_LINE_KINDS = st.sampled_from(["change", "change", "change", "change", "delete", "again", "move", "odd"])
Finish = Callable[[Any], Any]


def documents(originals: Sequence[Any], finish: Finish = lambda value: value) -> st.SearchStrategy[bytes]:
    """Files of one JSON value: one of ``originals`` with some fields changed, then perhaps some bytes.

    ``finish`` is given the changed value: it puts in the checksum that anyone can compute. Where it raises ValueError
    (a lone surrogate has no checksum), the value stays as it is.
    """
    values = changed(originals)

    @st.composite
    def files(draw: st.DrawFn) -> bytes:
        value = _finished(finish, draw(values))
        text = written(value, ascii_only=draw(_YES_OR_NO), indent=draw(_INDENTS))
        return _slipped(draw, text.encode("utf-8", "surrogatepass"))

    return files()


def _slipped(draw: st.DrawFn, data: bytes) -> bytes:
    """Now and then with slips."""
    return _slip(draw, data, 3) if draw(_ONE_IN_FIVE) == 0 else data


def _finished(finish: Finish, value: Any) -> Any:
    try:
        return finish(value)
    except (ValueError, TypeError, AttributeError, LookupError):
        return value


@st.composite
def changed(draw: st.DrawFn, originals: Sequence[Any]) -> Any:
    """A copy of one of ``originals``, with up to three changes."""
    value = copy.deepcopy(originals[draw(st.integers(0, len(originals) - 1))])
    for _ in range(draw(_CHANGES)):
        value = _change(draw, value)
    return value


def _change(draw: st.DrawFn, root: Any) -> Any:
    places = list(_places(root))
    if not places or draw(_ONE_IN_THIRTY) == 0:
        return draw(ODD)
    holder, key = places[draw(st.integers(0, len(places) - 1))]
    kind = draw(_KINDS)
    if kind == "delete":
        del holder[key]
    elif kind == "wrap":
        holder[key] = [holder[key]] if draw(_YES_OR_NO) else {str(key): holder[key]}
    elif kind == "again" and isinstance(holder, dict):
        holder[f"{key}{_AGAIN}"] = holder[key] if draw(_YES_OR_NO) else draw(ODD)
    elif kind == "again":
        holder.append(holder[key])
    elif kind == "add" and isinstance(holder, dict):
        holder[draw(ODD_TEXTS)] = draw(ODD)
    elif kind == "name" and isinstance(holder, dict):
        holder[draw(ODD_TEXTS)] = holder.pop(key)
    elif kind == "other":  # the value of another place, which is of a right type more often
        other, name = places[draw(st.integers(0, len(places) - 1))]
        holder[key] = copy.deepcopy(other[name])
    else:
        holder[key] = draw(ODD)
    return root


def _places(value: Any) -> Iterable[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield value, key
        yield from _places(item)


def written(value: Any, *, ascii_only: bool = True, indent: int | None = None) -> str:
    """JSON, in which the marks of ``ODD`` stand as what they mean."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    if "ue000" in text or "\ue000" in text:
        text = text.replace(json.dumps(_AGAIN)[1:-1], "").replace(_AGAIN, "")
        for number, raw in reversed(list(enumerate(RAW))):
            text = text.replace(json.dumps(f"{_MARK}{number}"), raw).replace(f'"{_MARK}{number}"', raw)
    return text


# ---------------------------------------------------------------- lines and bytes


@st.composite
def lines(
    draw: st.DrawFn, original: Sequence[Any], finish: Callable[[list[Any]], list[Any]] = lambda value: value
) -> bytes:
    """A file of JSON lines: values of ``original`` changed, left out, repeated or in another order."""
    values = copy.deepcopy(list(original))
    for _ in range(draw(_CHANGES)):
        at = draw(st.integers(0, max(0, len(values) - 1)))
        kind = draw(_LINE_KINDS)
        if not values or kind == "odd":
            values.insert(at, draw(ODD))
        elif kind == "change":
            values[at] = _change(draw, values[at])
        elif kind == "delete":
            del values[at]
        elif kind == "again":
            values.insert(at, values[at])
        else:
            values.append(values.pop(at))
    ascii_only = draw(_YES_OR_NO)
    text = "".join(f"{written(value, ascii_only=ascii_only)}\n" for value in _finished(finish, values))
    return _slipped(draw, text.encode("utf-8", "surrogatepass"))


JUNK = [
    *(b"\0", b"\0" * 5_000, b"\n", b"\r\n", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf5"),
    *(b"\xc0\x80",),
    *(b"\x1b[2J", b"9" * 5_000, b"[" * 100_000, b"{", b"}", b'"', b"\\", b"'", b",", b":", b"-", b"null"),
    *(b"1e999999", b"NaN"),
    *(b"%", b"%ff", b"%00", b"=", b"&", b"?", b"#", b"@", b"/", b"//", b" " * 10_000, b"x" * 70_000),
    *("\u202e٣".encode(),),
]  # fmt: skip
_JUNK = st.sampled_from(JUNK)
_ENCODINGS = st.sampled_from(["utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp037", "utf-8-sig"])


_SLIPS = st.sampled_from(["flip", "junk", "junk", "cut", "delete", "again", "encode", "end", "breaks", "other"])
_BREAKS = st.sampled_from([b"\r\n", b"\r", b"", b"\n\n", "\u2028".encode()])


@st.composite
def slips(draw: st.DrawFn, corpus: Sequence[bytes], most: int = 3) -> bytes:
    """Bytes of ``corpus`` with a few of them changed, cut off, repeated, or in another encoding; or other bytes."""
    return _slip(draw, corpus[draw(st.integers(0, len(corpus) - 1))], most)


def _slip(draw: st.DrawFn, data: bytes, most: int) -> bytes:
    for _ in range(draw(st.integers(0, most))):
        kind, at = draw(_SLIPS), draw(st.integers(0, len(data)))
        if kind == "flip":
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        elif kind == "junk":
            data = data[:at] + draw(_JUNK) + data[at + draw(st.integers(0, 3)) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "delete":
            data = data[:at] + data[at + draw(st.integers(1, 30)) :]
        elif kind == "again":
            data = data[:at] + data[at : at + draw(st.integers(1, 300))] + data[at:]
        elif kind == "encode":
            data = data.decode("latin-1").encode(draw(_ENCODINGS), "replace")
        elif kind == "end":
            data += draw(_JUNK)
        elif kind == "breaks":
            data = data.replace(b"\n", draw(_BREAKS))
        else:
            data = draw(st.binary(max_size=60))
    return data


def words(corpus: Sequence[str], most: int = 3) -> st.SearchStrategy[str]:
    """Text of ``corpus`` with slips, as a command line or the environment can hold it: any bytes, but no NUL."""
    plain = slips([each.encode() for each in corpus], most).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
    return st.sampled_from(corpus) | plain | plain


def with_field(content: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**content, name: value}
