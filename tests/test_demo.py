"""The demonstration, in small: everything it promises is there."""

import numpy as np
from PIL import Image

from vcrl import demo
from vcrl.training.plan import Schedule


def test_the_demo_ends_with_a_table_figures_and_a_film(tmp_path, monkeypatch, capsys, quick_compiles):
    monkeypatch.setattr(
        demo, "SCHEDULE", Schedule(log=10, evaluate=60, gradients=0, q_error=60, q_error_positions=50)
    )
    # The methods' own settings, which stand in the fifth place, but smaller and sooner.
    small = {"batch": 4, "hidden": 8, "learn_start": 60}
    for name in ("make_plan", "train"):
        whole = getattr(demo, name)
        monkeypatch.setattr(demo, name, lambda *given, whole=whole: whole(*given[:4], small, *given[5:]))
    rows = demo.demo(tmp_path, [0, 1], 120, ("catch", "balloon"), ("rainbow", "spr"))
    assert [(r.task, r.method, r.seeds) for r in rows] == [
        (game, method, 2) for game in ("catch", "balloon") for method in ("rainbow", "spr")
    ]
    assert rows[0].q_error is None and rows[1].q_error is not None
    said = capsys.readouterr().out
    for name in ("learning-curves.png", "q-error.png", "spr-balloon.gif", "summary.md"):
        assert name in said.replace("\n", "") and (tmp_path / name).stat().st_size > 0
    with Image.open(tmp_path / "learning-curves.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 5
    # Again: nothing is trained twice, and the table is the same.
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint/*")}
    again = demo.demo(tmp_path, [0, 1], 120, ("catch", "balloon"), ("rainbow", "spr"))
    assert again == rows and {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint/*")} == before
