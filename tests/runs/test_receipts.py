"""A receipt is whole or absent, small, and believed only as far as its bytes go."""

import hashlib
import json
import random
import zlib

import numpy as np
import pytest

from vcrl.runs import receipts
from vcrl.runs.files import temp_of
from vcrl.runs.folder import RunFolder
from vcrl.runs.receipts import BadReceipt, Game, Receipt, keep, parse, path_of, read, render, steps_in, write

CHANCE = np.random.default_rng(0)
GAMES = {
    "uint8": [
        Game(s, e, CHANCE.integers(0, 18, 5 + 3 * e).astype(np.uint8)) for s in (0, 7) for e in range(3)
    ],
    "uint16": [Game(1, 0, np.array([0, 65535, 300], np.uint16))],
    "int32": [Game(1, 0, np.array([70000], np.int32)), Game(1, 1, np.array([2**31 - 1, 0], np.int32))],
    "float32": [Game(2, e, CHANCE.uniform(-1, 1, (4 + e, 6)).astype(np.float32)) for e in range(4)],
}


def receipt(kind="uint8", at=100):
    return Receipt(at, "pong", "abcd1234", 1, GAMES[kind])


def same(one: Receipt, two: Receipt) -> bool:
    return one[:4] == two[:4] and all(
        a[:2] == b[:2] and a.actions.dtype == b.actions.dtype and np.array_equal(a.actions, b.actions)
        for a, b in zip(one.games, two.games, strict=True)
    )


@pytest.mark.parametrize("kind", GAMES)
def test_what_is_written_is_read(tmp_path, kind):
    write(tmp_path, receipt(kind))
    assert same(read(tmp_path, 100), receipt(kind)) and steps_in(tmp_path) == [100]


def test_the_same_games_are_the_same_bytes(tmp_path):
    one = write(tmp_path, receipt()).read_bytes()
    assert write(tmp_path, receipt()).read_bytes() == one == render(receipt())
    assert [p.name for p in (tmp_path / "receipts").iterdir()] == ["000000100.receipt"]


def test_a_thousand_atari_games_are_kilobytes():
    """Of 800 steps each. Uniform among 18 actions is the worst there is, 4.2 bits a step; players repeat themselves."""
    chance = np.random.default_rng(1)
    random_play = [
        Game(s, e, chance.integers(0, 18, 800).astype(np.uint8)) for s in range(10) for e in range(100)
    ]
    assert len(render(Receipt(1, "hero", "x", 1, random_play))) < 500_000
    held = [g._replace(actions=np.repeat(g.actions[::8], 8)) for g in random_play]
    assert len(render(Receipt(1, "hero", "x", 1, held))) < 200_000


def test_any_single_byte_matters():
    whole, chance = render(receipt()), random.Random(0)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= chance.randrange(1, 256)
        with pytest.raises(BadReceipt):
            parse(bytes(changed))


def test_any_truncation_or_addition_matters():
    whole = render(receipt("float32"))
    for wrong in [*(whole[:n] for n in range(len(whole))), whole + b"\0", whole + b"\n", whole * 2]:
        with pytest.raises(BadReceipt):
            parse(wrong)


def forged(change=None, packed=None):
    """By somebody who can compute checksums."""
    line, _, old = render(receipt()).partition(b"\n")
    head = json.loads(line)
    del head["bytes"], head["sha256"]
    (change or (lambda head: None))(head)
    packed = old if packed is None else packed
    seal = hashlib.sha256(json.dumps(head).encode() + packed).hexdigest()
    return json.dumps({**head, "bytes": len(packed), "sha256": seal}).encode() + b"\n" + packed


HEADS = {
    "more games": lambda h: h.update(games=7),
    "fewer games": lambda h: h.update(games=5),
    "no games": lambda h: h.update(games=0),
    "games without end": lambda h: h.update(games=2**62, steps=2**62),
    "more steps": lambda h: h.update(steps=h["steps"] + 1),
    "a step less": lambda h: h.update(steps=h["steps"] - 1),
    "negative steps": lambda h: h.update(steps=-1),
    "a number too many": lambda h: h.update(steps=float(h["steps"])),
    "objects": lambda h: h.update(dtype="object"),
    "a wide type": lambda h: h.update(dtype="float32"),
    "a deep shape": lambda h: h.update(shape=[1, 1]),
    "a huge shape": lambda h: h.update(shape=[2**40]),
    "an empty shape": lambda h: h.update(shape=[0]),
    "a shape of words": lambda h: h.update(shape=["6"]),
    "true as a count": lambda h: h.update(salt=True),
    "another format": lambda h: h.update(format="vcrl receipt 9"),
    "a word more": lambda h: h.update(more=1),
    "a word less": lambda h: h.pop("task"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_lies_with_a_good_checksum(name):
    assert same(parse(forged()), receipt())  # the forger is able
    with pytest.raises(BadReceipt):
        parse(forged(HEADS[name]))


def test_a_bomb_is_not_unpacked(monkeypatch):
    """A gigabyte in a megabyte: refused by its sizes, or given up where the promise ends."""
    bomb = zlib.compress(bytes(2**26), 9)
    with pytest.raises(BadReceipt, match="not as long"):
        parse(forged(packed=bomb))
    monkeypatch.setattr(receipts, "LARGEST_OPEN", 2**20)
    with pytest.raises(BadReceipt, match="promises more"):
        parse(forged(lambda h: h.update(steps=2**26 - 144), bomb))


def table(rows, actions=b""):
    return zlib.compress(np.array(rows, "<i8").tobytes() + actions)


@pytest.mark.parametrize(
    "rows",
    [[(0, 0, 3), (0, 0, 3)], [(0, 0, 7), (0, 1, -1)], [(0, 0, 6), (0, 1, 0)], [(-1, 0, 3), (0, 1, 3)],
     [(0, 0, 2**62), (0, 1, 2**62)], [(0, 0, 3), (0, 1, 4)]],
)  # fmt: skip
def test_games_that_cannot_be(rows):
    good = [(0, 0, 3), (0, 1, 3)]
    assert len(parse(forged(lambda h: h.update(games=2, steps=6), table(good, b"\1" * 6))).games) == 2
    with pytest.raises(BadReceipt, match="cannot be"):
        parse(forged(lambda h: h.update(games=2, steps=6), table(rows, b"\1" * 6)))


def test_noise_is_refused():
    chance = random.Random(1)
    for _ in range(300):
        with pytest.raises(BadReceipt):
            parse(chance.randbytes(chance.randrange(200)))
    for text in (
        b"[" * 5000,
        b'{"format":1e999}\n',
        b'{"format":"vcrl receipt 1"}\n',
        b"null\n",
        b" " * 9999,
    ):
        with pytest.raises(BadReceipt):
            parse(text)


def test_reasons_are_given(tmp_path):
    with pytest.raises(BadReceipt, match="is missing"):
        read(tmp_path, 100)
    write(tmp_path, receipt(at=100)).rename(path_of(tmp_path, 200))
    with pytest.raises(BadReceipt, match="another evaluation"):
        read(tmp_path, 200)
    path_of(tmp_path, 300).mkdir()
    with pytest.raises(BadReceipt, match="cannot be read"):
        read(tmp_path, 300)


def test_games_of_two_kinds_or_none_are_a_mistake():
    for games in ([*GAMES["uint8"], *GAMES["uint16"]], [Game(0, 0, np.zeros(0, np.uint8))]):
        with pytest.raises(ValueError, match="of one kind"):
            render(Receipt(1, "pong", "x", 1, games))


RECORD = {"task": "pong", "protocol_hash": "abcd1234"}


def test_a_resumed_run_keeps_the_receipts_of_the_rows_it_keeps(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as run:
        positions = {}
        for at in (100, 200):
            run.receipt(at, 1, GAMES["uint8"])
            run.evaluation(0, at, 0, 1.0, 5)
            positions = positions or run.positions()
        run.receipt(300, 1, GAMES["uint8"])  # killed before its rows
        half = temp_of(path_of(tmp_path, 300))
        half.write_bytes(b"half")
        run.truncate(positions)
        assert steps_in(tmp_path) == [100] and not half.exists()
        assert same(read(tmp_path, 100), receipt())
        run.truncate()
        assert steps_in(tmp_path) == []


def test_a_damaged_row_does_not_keep_a_run_from_going_on(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as run:
        run.receipt(100, 1, GAMES["uint8"])
        run.evaluation(0, 100, 0, 1.0, 5)
        run.evaluation(0, 200, 0, 1.0, 5)
        positions = run.positions()
    log = tmp_path / "eval.csv"
    log.write_bytes(log.read_bytes().replace(b"0,200,0", b"0;200;0"))
    with RunFolder.open(tmp_path, RECORD) as run:
        run.truncate(positions)
    assert steps_in(tmp_path) == [100]


def test_files_of_others_are_left(tmp_path):
    (tmp_path / "receipts").mkdir()
    for name in ("notes.txt", "1.receipt", "000000100.receipt"):
        (tmp_path / "receipts" / name).write_text("")
    keep(tmp_path, {100})
    assert {p.name for p in (tmp_path / "receipts").iterdir()} == {"notes.txt", "000000100.receipt"}
    assert steps_in(tmp_path) == [100]
