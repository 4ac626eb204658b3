"""What a job finds in its environment, whatever the variables and their files hold: a start, or a refusal in words."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from hypothesis import strategies as st

from reconciler.core.errors import ExitCode
from reconciler.formats.json_fields import digest_without
from reconciler.formats.plan import digest
from reconciler.formats.start import Side
from reconciler.spark.handoff import from_environment
from reconciler.spark.handoff.locations import NOTE, location
from reconciler.spark.handoff.options import CHECKPOINT_VARIABLE, PLAN_VARIABLE, START_VARIABLE
from reconciler.spark.handoff.proof import CLUSTER_VARIABLE, DIGEST_VARIABLE, KEYS_VARIABLE
from tests.fuzz import AS_TYPED, attempt, documents, fuzz, sized, with_field, words
from tests.golden.keys import write_key
from tests.spark.handoff.test_proof import LASTS, START

REFUSALS = (ExitCode.USAGE, ExitCode.CHANGED, ExitCode.NEEDS_PERSON, ExitCode.UNREACHABLE)
PLAN = json.loads(LASTS.to_text())
STARTS = [json.loads(replace(START, side=side).to_text()) for side in Side]
STARTS_OR_PLANS = {
    START_VARIABLE: documents(STARTS, lambda value: with_field(value, "sha256", digest_without(value, "sha256"))),
    PLAN_VARIABLE: documents([PLAN], lambda value: with_field(value, "sha256", digest(value))),
}
CLUSTER = PLAN["destination"]["bootstrap_servers"]


@sized
def test_any_files_that_the_environment_names_are_a_start_or_are_refused(runs: int, tmp_path: Path) -> None:
    write_key(tmp_path, "ada")
    keys = str(tmp_path / "ada.pub.pem")

    def claim(drawn: tuple[dict[str, bytes], bool, bool]) -> None:
        contents, vouched, signed = drawn
        environ = {CLUSTER_VARIABLE: CLUSTER} if vouched else {}
        environ |= {KEYS_VARIABLE: keys} if signed else {}
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
            environ[name] = str(tmp_path / name)
        found = attempt(lambda: from_environment(environ=environ), *REFUSALS)
        if found is None or not found.is_whole:
            return
        assert not signed, "nothing here is signed"
        options = attempt(found.read_stream_options, *REFUSALS)
        if options is not None:
            assert (vouched, options["kafka.bootstrap.servers"]) == (True, CLUSTER)
            started = json.loads(options["startingOffsets"])
            assert all(offset >= 0 for partitions in started.values() for offset in partitions.values())

    contents = st.fixed_dictionaries({}, optional=STARTS_OR_PLANS)
    fuzz(runs, st.tuples(contents, st.booleans(), st.sampled_from([False, False, True])), claim)


@sized
def test_any_variables_are_a_start_or_are_refused(runs: int, tmp_path: Path) -> None:
    files = {START_VARIABLE: START.to_text(), PLAN_VARIABLE: LASTS.to_text()}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    good = {name: [str(tmp_path / name), str(tmp_path), "/dev/null", ""] for name in files}
    good |= {
        DIGEST_VARIABLE: ["0" * 64],
        CLUSTER_VARIABLE: [CLUSTER],
        KEYS_VARIABLE: ["/dev/null", "-----BEGIN PUBLIC KEY-----"],
    }
    good |= {CHECKPOINT_VARIABLE: [str(tmp_path)]}
    values = {name: words(texts) for name, texts in good.items()}

    def claim(environ: dict[str, str]) -> None:
        found = attempt(lambda: from_environment(environ=environ), *REFUSALS, longest=AS_TYPED)
        if found is not None:
            attempt(found.read_stream_options, *REFUSALS)

    fuzz(runs, st.fixed_dictionaries({}, optional=values), claim)


@sized
def test_any_note_in_a_checkpoints_folder_is_read_or_refused(runs: int, tmp_path: Path) -> None:
    base = str(tmp_path / "clicks")
    location(base, START)
    note = tmp_path / "clicks" / NOTE
    original = json.loads(note.read_text())

    def claim(drawn: tuple[bytes, str]) -> None:
        content, name = drawn
        note.write_bytes(content)
        beside = tmp_path / f"clicks-{name}"
        if "/" not in name and len(name) < 200:
            beside.mkdir(exist_ok=True)
        found = attempt(partial(location, base, START), *REFUSALS)
        assert found is None or found.startswith(base)
        for made in tmp_path.iterdir():
            if made.name != "clicks":
                for inside in made.iterdir():
                    inside.unlink()
                made.rmdir()

    fuzz(runs, st.tuples(documents([original]), words(["2", "3", "07", "9" * 100, "x", "2.tmp"])), claim)
