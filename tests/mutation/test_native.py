"""The mutator of the compiled modules changes what it should, and its mutants are found."""

from pathlib import Path

import pytest

from .native import judged, sample
from .native_build import all_mutants, build
from .native_mutants import mutants_of, names_in, selected

SOURCE = '''"""A docstring with a < b."""
cdef int LIMIT = 7

cdef extern from *:
    """
    #define TWICE(x) ((x) + (x))
    static int late(const char *p, int64_t end) {
        int64_t left = end - 1; /* a < b */
        if (p[0] & 1) return 0;
        else left++;
        return left > 4;
    }
    """

cdef bint take(bytes_t start, bytes_t end, int64_t size) noexcept nogil:
    """Return True if a < b."""
    cdef int64_t left = end - start
    assert size > 3, "never"
    if size < 0 or size > left:  # a < b
        return False
    while size:
        size -= <int32_t> left
    put(
        start, end)
    return True

def __dealloc__(self):
    free(self.data)
'''


def changes(source: str = SOURCE) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in mutants_of("a.pyx", source, names_in(source)):
        found.setdefault(each.unit.text, set()).add(each.after)
    return found


def test_statements_conditions_and_values_of_functions_are_changed() -> None:
    found = changes()
    assert found["size < 0 or size > left"] == {
        *("False", "True", "size < 0", "size > left", "size < 0 and size > left"),
        *("size <= 0 or size > left", "size >= 0 or size > left", "size < 1 or size > left"),
        *("size < 0 or size >= left", "size < 0 or size <= left"),
    }
    assert found["end - start"] == {"start - start", "end - end", "end + start"}
    assert found["size -= <int32_t> left"] == {
        *("pass", "size += <int32_t> left", "size -= <uint32_t> left"),
    }
    assert found["put( start, end)"] == {
        *("pass", "put( end, start)", "put( end, end)", "put( start, start)"),
    }
    assert found["return True"] == {"return False"}


def test_c_is_changed_but_no_macro() -> None:
    found = changes()
    assert found["end - 1"] == {"end + 1", "end - 2", "end - 0"}
    assert found["p[0] & 1"] == {"0", "1", "p[1] & 1", "p[0] | 1", "p[0] & 2", "p[0] & 0"}
    assert found["left++;"] == {"left--;", ";"}


def test_nothing_is_changed_that_decides_nothing() -> None:
    """Declarations, assertions, texts, macros and what frees memory."""
    for text in changes():
        assert not any(word in text for word in ("a < b", "never", "LIMIT", "free", "TWICE"))


def test_the_source_has_each_mutant_on_its_own_line() -> None:
    mutants = dict(enumerate(mutants_of("a.pyx", SOURCE, names_in(SOURCE)), 1))
    written = selected(SOURCE, mutants.items()).splitlines()
    for number, each in mutants.items():
        (line,) = [line for line in written if f"ql_is({number})" in line]
        assert each.after in line
    assert selected(SOURCE, []) == SOURCE


def test_a_sample_is_drawn_again_by_the_same_commit() -> None:
    mutants = all_mutants()
    drawn = sample(mutants, 50, "a commit", ())
    assert drawn == sample(mutants, 50, "a commit", ())
    assert {each.file for each in drawn.values()} == {each.file for each in mutants.values()}
    number = next(iter(drawn))
    assert number not in sample(mutants, 50, "a commit", {number})


@pytest.mark.long
def test_mutants_are_found_and_none_is_without_one(tmp_path: Path) -> None:
    """The judge asserts that each test passes without a mutant."""
    mutants = all_mutants()
    changed = {
        "size < HEADER_BYTES or size > view.len - at": "size < HEADER_BYTES",
        "p != NULL and p[0] != 0": "False",
    }
    drawn = {n: each for n, each in mutants.items() if changed.get(each.unit.text) == each.after}
    assert len(drawn) == 2
    assert not build(tmp_path, drawn, count=len(mutants))
    found = judged(
        tmp_path, list(drawn), len(mutants), tests=["tests/property/native/test_usual_fetches.py"]
    )
    endings = {each["ending"] for each in found["results"].values()}
    assert endings <= {"differs", "crash"}
