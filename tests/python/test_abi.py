"""What the Python package says of the C ABI, compared with client/cenote.h: by a C compiler, and as text."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

import cenote
import pytest
from cenote import _library as lib
from cenote import errors, prefetch

HEADER = Path(__file__).resolve().parents[2] / "client" / "cenote.h"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)

STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "cenote_buffer": lib.Buffer,
    "cenote_buffers": lib.Buffers,
    "cenote_copy_options": lib.CopyOptions,
    "cenote_group": lib.Group,
    "cenote_keys": lib.Keys,
    "cenote_match": lib.Match,
    "cenote_options": lib.Options,
    "cenote_part": lib.Part,
    "cenote_prefetch_options": lib.PrefetchOptions,
    "cenote_load_span": lib.LoadSpan,
    "cenote_reserved": lib.Reserved,
    "cenote_spec": lib.Spec,
    "cenote_stats": lib.Stats,
    "cenote_strided": lib.Strided,
}
AS_WORDS = {"cenote_held", "cenote_length"}  # read as words of an array: lib.HELD_WORDS, lib.LENGTH_WORDS

# Functions that are declared apart (their result is no code), and those that this package has no use for.
OTHER_RESULTS = {"cenote_abi_version", "cenote_last_error", "cenote_stream_native", *lib._FREEING}
UNUSED = {"cenote_error_name", "cenote_group_index", "cenote_group_leave", "cenote_part_index", "cenote_prefetch_start"}

SCALARS: dict[str, type] = {
    "char*": c_char_p,
    "int": c_int,
    "int32_t": c_int32,
    "size_t": c_size_t,
    "uint32_t": c_uint32,
    "uint64_t": c_uint64,
    "uint8_t": c_uint8,
}


def structures_in_header() -> dict[str, list[str]]:
    """Name -> its fields, in order."""
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", TEXT, flags=re.DOTALL):
        found[name] = [declaration.split()[-1].lstrip("*") for declaration in body.split(";") if declaration.strip()]
    return found


def functions_in_header() -> dict[str, list[str]]:
    """Name -> types of its parameters, without const and blanks."""
    found = {}
    for name, parameters in re.findall(r"CENOTE_API [\w ]+?\**\s*\b(cenote_\w+)\(([^)]*)\);", TEXT):
        types = []
        for each in parameters.split(","):
            kind = re.sub(r"\bconst\b|\w+$", "", each.strip()) if each.strip() != "void" else ""
            types.append(re.sub(r"\s+", "", kind))
        found[name] = [kind for kind in types if kind]
    return found


def acceptable(kind: str) -> list[object]:
    """The ctypes that stand for a type of C; any pointer may be a plain address."""
    if kind in SCALARS:
        return [SCALARS[kind]]
    if kind in STRUCTURES:
        return [STRUCTURES[kind]]
    assert kind.endswith("*"), kind
    target = kind[:-1]
    pointed: list[object] = [c_void_p]
    if target in SCALARS or target in STRUCTURES:
        pointed.append(POINTER(SCALARS.get(target) or STRUCTURES[target]))
    elif target.endswith("*"):
        pointed.append(POINTER(c_void_p))
    return pointed


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a C compiler says: "structure" -> its size, "structure.field" -> offset, and the value of each constant."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    lines = []
    for name, fields in structures_in_header().items():
        lines.append(f'show("{name}", sizeof({name}));')
        lines += [f'show("{name}.{field}", offsetof({name}, {field}));' for field in fields]
    constants = re.findall(r"\b(CENOTE_[A-Z_]+)\b\s*=", TEXT) + re.findall(r"#define (CENOTE_[A-Z_]+) \(?-?\d", TEXT)
    lines += [f'show("{name}", {name});' for name in constants]
    place = tmp_path_factory.mktemp("abi")
    source = place / "abi.c"
    source.write_text(
        f'#include <stdio.h>\n#include "{HEADER}"\n'
        'static void show(const char* name, long long value) { printf("%s %lld\\n", name, value); }\n'
        "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    subprocess.run([compiler, "-std=c99", "-Wall", "-Werror", source, "-o", place / "abi"], check=True)
    said = subprocess.run([place / "abi"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in said.splitlines())}


def test_every_structure_of_the_header_is_known() -> None:
    assert set(structures_in_header()) == set(STRUCTURES) | AS_WORDS


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_has_the_fields_of_the_header_where_the_compiler_puts_them(
    name: str, measured: dict[str, int]
) -> None:
    here = STRUCTURES[name]
    fields = [field[0] for field in here._fields_]
    assert fields == structures_in_header()[name]
    assert {field: getattr(here, field).offset for field in fields} == {
        field: measured[f"{name}.{field}"] for field in fields
    }
    assert ctypes.sizeof(here) == measured[name]


def test_pinned_blocks_are_read_as_words_of_the_right_number_and_order(measured: dict[str, int]) -> None:
    assert measured["cenote_held"] == 8 * lib.HELD_WORDS
    assert [measured[f"cenote_held.{field}"] for field in ("data", "bytes", "slot")] == [0, 8, 16]


def test_lengths_of_groups_are_words_of_the_right_number_and_order(measured: dict[str, int]) -> None:
    assert measured["cenote_length"] == 8 * lib.LENGTH_WORDS
    assert [measured[f"cenote_length.{field}"] for field in ("question", "length")] == [0, 8]


def test_every_function_of_the_header_is_declared_or_named_as_unused() -> None:
    assert set(functions_in_header()) == set(lib._SIGNATURES) | OTHER_RESULTS | UNUSED


@pytest.mark.parametrize("name", lib._SIGNATURES)
def test_a_function_takes_what_the_header_says(name: str) -> None:
    declared = functions_in_header()[name]
    here = lib._SIGNATURES[name]
    assert len(here) == len(declared), f"{name}({', '.join(declared)})"
    for number, (mine, theirs) in enumerate(zip(here, declared, strict=True)):
        assert mine in acceptable(theirs), f"argument {number} of {name} is a {theirs}"


def test_constants_have_the_values_of_the_header(measured: dict[str, int]) -> None:
    codes = {
        name.removeprefix("CENOTE_").lower(): value for name, value in measured.items() if name.startswith("CENOTE_")
    }
    assert {each.code: each.number for each in errors._BY_NUMBER.values()} == {
        name: codes[name] for name in re.findall(r"\w+", enumerators("cenote_error").lower()) if name != "ok"
    }
    assert (codes["writable"], codes["present"], codes["pending"]) == (lib.WRITABLE, lib.PRESENT, lib.PENDING)
    assert codes["whole_block"] == lib.WHOLE_BLOCK
    assert {name or "default": number for name, number in prefetch.POLICIES.items()} == {
        name.removeprefix("prefetch_"): codes[name] for name in enumerators("cenote_prefetch_policy").lower().split()
    }
    flags = (lib.PREFETCH_BASE, lib.PREFETCH_PER_KI_TOKEN, lib.PREFETCH_PREFILL_RATE, lib.PREFETCH_THRESHOLD)
    assert flags == tuple(codes[f"prefetch_{name}"] for name in ("base", "per_ki_token", "prefill_rate", "threshold"))
    assert (codes["abi_major"], codes["abi_minor"]) >= (lib.ABI_MAJOR, lib.ABI_MINOR)


def enumerators(name: str) -> str:
    """Names in an enumeration, without the prefix CENOTE_, separated by blanks."""
    found = re.search(rf"typedef enum {name} \{{(.*?)\}}", TEXT, flags=re.DOTALL)
    assert found is not None
    return " ".join(re.findall(r"CENOTE_(\w+)", found[1]))


def test_counters_are_typed_by_the_names_of_the_header() -> None:
    assert tuple(cenote.Stats.__annotations__) == lib.STATS_FIELDS
