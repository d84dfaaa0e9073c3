"""Rules of scripts/check_names.py on small source trees, and its ratchet."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., int]


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_names", ROOT / "scripts" / "check_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with an empty table."""
    write(tmp_path, "scripts/names.csv", "")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


@pytest.fixture
def run(checker: ModuleType, tree: Path) -> Run:
    return lambda *arguments: int(checker.main(list(arguments), tree))


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def faults(checker: ModuleType, folder: Path, name: str, text: str) -> list[str]:
    write(folder, name, text)
    return [f"{fault.kind} {fault.text}" for fault in checker.scan(folder, [name]).faults]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("void copy(int from, int count);", "parameter from"),
        ("int copy(int count, bool late = false) { return count; }", "parameter late"),
        ("class queue { int lost_ = 0; };", "member lost_"),
        ("struct pair { int first; int above; };", "member above"),
        ("struct list { int found() const; };", "prototype found"),
        ("int told() { return 1; }", "function told"),
        ("class held {};", "class held"),
        ("enum class how { fast };", "enum how"),
        ("using what = int;", "typedef what"),
        ("template <class Each> void visit(Each&& item);", "tparam Each"),
        ("auto f = [](int of) {\n  int a = of;\n  return a;\n};", "parameter of"),
    ],
)
def test_each_kind_of_cpp_identifier_is_checked(checker: ModuleType, tmp_path: Path, source: str, fault: str) -> None:
    assert faults(checker, tmp_path, "a.cpp", source) == [f"identifier {fault}"]


@pytest.mark.parametrize(
    "source",
    [
        "void visit(const list& items) { for (const auto& each : items) use(each); }",
        "int f() { int found = 1; auto [left, own] = pair(); return found; }",
        "void f() { sort([](int at, int by) { return at < by; }); }",
        "void f() { sort([](int at, int by) {\n  return at < by;\n}); }",
        "enum class state { left, lost };",
        "struct report { int written; int evicted; bool done; };",
        "void copy(int whole_from, int kept_bytes);",
    ],
)
def test_ranges_locals_short_lambdas_and_words_of_the_field_are_free(
    checker: ModuleType, tmp_path: Path, source: str
) -> None:
    assert faults(checker, tmp_path, "a.cpp", source) == []


def test_names_behind_concepts_bindings_and_attributes_are_seen(checker: ModuleType, tmp_path: Path) -> None:
    source = """
        template <class T> concept number = requires(T a) { a + a; };
        template <number T> requires(sizeof(T) > 1)
        [[nodiscard]] constexpr auto add(T first, T second) noexcept -> std::expected<T, error> {
          auto [a, b] = split(first);
          return visit([&]<class U>(U&& item) mutable -> T { return a + b + item; }, second);
        }
        class [[nodiscard]] pool final : public base<int> {
         public:
          explicit pool(std::span<const std::byte> data = {}) : data_{data} {}
          auto operator<=>(const pool&) const = default;
          void at(std::function<void(int)> done) const&;
         private:
          std::map<int, std::vector<int>> kept_{};
        };
    """
    assert faults(checker, tmp_path, "a.hpp", source) == ["identifier prototype at", "identifier member kept_"]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("def copy(of, count): ...", "parameter of"),
        ("def copy(*, until=None): ...", "parameter until"),
        ("async def found(): ...", "function found"),
        ("class Held: ...", "class Held"),
        ("class Pin:\n    held: int", "attribute held"),
        ("class Pin:\n    def __init__(self):\n        self._lost = 1\n        self._lost = 2", "attribute _lost"),
        ("visit(lambda of: [\n    of,\n    1,\n])", "parameter of"),
    ],
)
def test_each_kind_of_python_identifier_is_checked(
    checker: ModuleType, tmp_path: Path, source: str, fault: str
) -> None:
    assert faults(checker, tmp_path, "a.py", source) == [f"identifier {fault}"]


@pytest.mark.parametrize(
    "source",
    [
        "def copy(items):\n    found = [each for each in items]\n    return found",
        "items.sort(key=lambda of: of.size)",
        "class State(Enum):\n    LOST = 1",
        "class Pin:\n    def __or__(self, other): ...",
    ],
)
def test_python_locals_short_lambdas_and_enumerators_are_free(checker: ModuleType, tmp_path: Path, source: str) -> None:
    assert faults(checker, tmp_path, "a.py", source) == []


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("a.cpp", "// A block that nobody reads.", ["nobody"]),
        ("a.cpp", "int a;  ///< the node says so", ["says"]),
        ("a.cpp", "/* A session\n * that was told of it. */", ["told"]),
        ("a.cpp", "int a = 1'000; // a client who waits", ["who"]),
        ("a.cpp", "/// What a block is.\n/// What it costs.", ["What"]),
        ("a.py", '"""How a block is read."""', ["How"]),
        ("a.py", "# A block.\n# What it is, somebody knows.", ["somebody"]),
        ("a.py", "class A:\n    def f(self):\n        '''Hears of a removal.'''", ["Hears"]),
    ],
)
def test_persons_speech_and_pronouns_as_subjects_are_seen_in_comments(
    checker: ModuleType, tmp_path: Path, name: str, source: str, words: list[str]
) -> None:
    assert faults(checker, tmp_path, name, source) == [f"comment {word}" for word in words]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.cpp", 'auto a = "// nobody"; auto b = R"x(/* who */ ")x"; char c = \'"\'; // a quote'),
        ("a.cpp", "/// Calls `tell`, and `who` afterwards."),
        ("a.cpp", "int a;  // what the kernel allows"),
        ("a.cpp", "// I/O of a tier."),
        ("a.py", 'a = "# nobody says"'),
    ],
)
def test_strings_code_and_phrases_behind_code_are_no_sentences(
    checker: ModuleType, tmp_path: Path, name: str, source: str
) -> None:
    assert faults(checker, tmp_path, name, source) == []


def test_one_word_in_a_thousand_is_no_fault(checker: ModuleType, tree: Path) -> None:
    for words, counts in ((998, {"a.cpp": (0, 1)}), (999, {})):
        write(tree, "a.cpp", "// The block " + "pin " * (words - 2) + "says")
        assert checker.scan(tree, ["a.cpp"]).counts() == counts


def test_a_name_of_a_type_belongs_to_one_namespace_unless_it_is_listed(
    tree: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tree, "core/a.hpp", "namespace one { struct slab; struct slab {}; struct node { struct part {}; }; }")
    write(tree, "core/b.hpp", "namespace one { struct page { struct part {}; }; }")
    write(tree, "core/c.hpp", "namespace two { using slab = one::slab; }")
    write(tree, "core/c.cpp", "namespace one { namespace { struct slab {}; } }")
    assert run() == 0
    write(tree, "tests/a.hpp", "namespace three { struct slab {}; }")
    assert run() == 0
    write(tree, "core/d.hpp", "namespace two { struct slab {}; }")
    assert run() == 1
    assert "type slab: in 2 namespaces, 1 allowed: one, two" in capsys.readouterr().out
    write(tree, "scripts/names.csv", "slab,2\n")
    assert run() == 0


def test_a_new_file_has_no_allowance_also_in_an_old_folder(
    tree: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tree, "core/old.cpp", "void f(int count);")
    write(tree, "scripts/names.csv", "core/old.cpp,5,5\n")
    write(tree, "core/new.cpp", "// A block.\nvoid f(int of);")
    assert run() == 1
    assert run("--update") == 1
    assert "core/new.cpp:2: identifier: parameter of" in capsys.readouterr().out


def test_the_ratchet_refuses_a_rise_and_follows_a_fall(
    tree: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tree / "scripts/names.csv"
    write(tree, "scripts/names.csv", "core/a.cpp,2,1\nslab,2\n")
    write(tree, "core/a.cpp", "// A block that nobody reads.\nvoid f(int of, int by, int at);")
    assert run() == 1
    assert run("--update") == 1
    assert table.read_text() == "core/a.cpp,2,1\nslab,2\n"
    assert "core/a.cpp: 3 faults (identifier), 2 allowed" in capsys.readouterr().out

    write(tree, "core/a.cpp", "// A block that nobody reads.\nvoid f(int of);")
    assert run() == 0
    assert "--update" in capsys.readouterr().out
    assert run("--update") == 0
    assert [line for line in table.read_text().splitlines() if line[0] != "#"] == ["core/a.cpp,1,1"]
    assert run() == 0
    assert capsys.readouterr().out == ""

    write(tree, "core/a.cpp", "// A block that nobody reads.\nvoid f(int of, int by);")
    assert run() == 1


def test_code_may_move_between_old_files_of_a_folder_but_not_of_two(tree: Path, run: Run) -> None:
    write(tree, "scripts/names.csv", "core/a.cpp,2,0\ncore/b.cpp,1,0\ntiers/c.cpp,1,0\n")
    write(tree, "core/a.cpp", "void f(int of);")
    write(tree, "core/b.cpp", "void f(int of, int by);")
    write(tree, "tiers/c.cpp", "void f(int of);")
    assert run() == 0
    write(tree, "core/b.cpp", "void f(int of);")
    write(tree, "tiers/c.cpp", "void f(int of, int by);")
    assert run() == 1


def test_a_file_that_was_moved_keeps_its_figures_by_an_update(tree: Path, run: Run) -> None:
    write(tree, "core/a.cpp", "\n".join(f"void f{number}(int of);" for number in range(9)))
    write(tree, "scripts/names.csv", "core/a.cpp,9,0\n")
    commit(tree)
    (tree / "tiers").mkdir()
    git(tree, "mv", "core/a.cpp", "tiers/b.cpp")
    assert run() == 1
    assert run("--update") == 0
    assert run() == 0
    assert "tiers/b.cpp,9,0\n" in (tree / "scripts/names.csv").read_text()
    assert "core" not in (tree / "scripts/names.csv").read_text()
