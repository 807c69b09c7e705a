"""Pages: the same rows as a sorted dict, whatever was written in whatever batches, and only what changed is written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.runtime.spark.stage.pages import LoadedPages, PagedRows
from flowql.runtime.state.physical import Writes

keys = st.binary(min_size=1, max_size=3)
batches = st.lists(
    st.tuples(
        st.lists(st.tuples(keys, keys), max_size=2),  # ranges
        st.dictionaries(keys, st.none() | st.binary(max_size=12), max_size=40),
    ),
    max_size=8,
)


class Stored:
    """What a storage would hold."""

    def __init__(self) -> None:
        self.pages: dict[int, bytes] = {}
        self.directory: bytes | None = None

    def read(self, page: int) -> bytes:
        return self.pages[page]

    def apply(self, rows: PagedRows, writes: Writes) -> None:
        changes = rows.apply(writes)
        for page in changes.removed:
            del self.pages[page]
        self.pages.update(changes.written)
        self.directory = changes.directory or self.directory


@settings(max_examples=150, deadline=None)
@given(batches, st.integers(10, 80), st.booleans(), keys, keys)
def test_pages_hold_what_a_dict_holds(
    given_batches: list[tuple[list[tuple[bytes, bytes]], dict[bytes, bytes | None]]],
    page_bytes: int,
    reopen: bool,
    low: bytes,
    high: bytes,
) -> None:
    stored, want = Stored(), dict[bytes, bytes]()
    rows = PagedRows(stored, page_bytes=page_bytes)
    for ranges, puts in given_batches:
        if reopen:
            rows = PagedRows(stored, stored.directory, page_bytes)
        stored.apply(rows, Writes(ranges, list(puts), list(puts.values())))
        want = {k: v for k, v in want.items() if not any(a <= k < b for a, b in ranges)}
        want |= {k: v for k, v in puts.items() if v is not None}
        want = {k: v for k, v in want.items() if k not in puts or puts[k] is not None}
        assert list(rows.rows()) == sorted(want.items())
        assert len(rows) == len(stored.pages), "every page of the directory is stored, and no other"
        asked = [*want, low, high, b"\xff\xff\xff\xff"]
        assert rows.multi_get(asked) == [want.get(k) for k in asked]
        assert list(rows.scan(low, high)) == sorted((k, v) for k, v in want.items() if low <= k < high)
    assert list(PagedRows(stored, stored.directory, page_bytes).rows()) == sorted(want.items())


def test_one_changed_row_writes_one_page() -> None:
    stored = Stored()
    rows = PagedRows(stored, page_bytes=200)
    all_keys = [b"%04d" % i for i in range(500)]
    stored.apply(rows, Writes([], all_keys, [b"x"] * 500))
    assert len(rows) > 5
    reopened = PagedRows(stored, stored.directory, 200)
    changes = reopened.apply(Writes([], [b"0250"], [b"y"]))
    assert (len(changes.written), changes.removed, changes.directory) == (1, [], None)
    assert reopened.pages_read == 1


def test_a_range_delete_removes_whole_pages_unread() -> None:
    stored = Stored()
    rows = PagedRows(stored, page_bytes=200)
    stored.apply(rows, Writes([], [b"%04d" % i for i in range(500)], [b"x"] * 500))
    reopened = PagedRows(stored, stored.directory, 200)
    changes = reopened.apply(Writes([(b"0010", b"0490")], [], []))
    assert len(changes.removed) > 5
    assert reopened.pages_read <= 3
    assert [k for k, _ in reopened.rows()] == [b"%04d" % i for i in [*range(10), *range(490, 500)]]


def test_a_state_that_begins_has_no_pages() -> None:
    rows = PagedRows(LoadedPages({}))
    assert rows.get(b"a") is None
    assert not list(rows.scan(b"", b"\xff"))
