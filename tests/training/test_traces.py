"""Nothing is compiled twice, and games that look alike share what is compiled."""

import pytest
from tiny import tiny

from vcrl.training import engine as engine_module
from vcrl.training.engine import engine_of

pytestmark = pytest.mark.usefixtures("quick_compiles")


def test_each_function_is_traced_once_in_a_whole_run_and_shared_between_games(tmp_path, monkeypatch):
    # Traced anew, whatever ran before; what is compiled is what the other tests have.
    monkeypatch.setattr(engine_module, "_engines", {})
    one, two = tiny(tmp_path, task="catch"), tiny(tmp_path, task="balloon")
    engine = engine_of(one.plan)
    assert engine_of(two.plan) is engine
    sizes = {name: program._cache_size() for name, program in engine.lifted._asdict().items()}
    assert sizes.pop("play") == 2, "for evaluation and for the Q-error, which has other games"
    assert sizes.pop("rows") == sizes.pop("fill") == sizes.pop("copy") == 0, (
        "a run that was not stopped keeps its replay to itself"
    )
    assert sizes.pop("worth") == 0, "these games end, none is cut off"
    assert set(sizes.values()) == {1}, sizes
