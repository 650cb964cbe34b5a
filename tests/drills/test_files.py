"""Files of a stopped run that are truncated, changed or gone: the run ends the same, or is refused in one line."""

import io
import random
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from tiny import tiny
from toy import files

from vcrl.core.errors import UserError
from vcrl.runs.checks import FAILED
from vcrl.runs.verify import verify


def newest(pattern: str):
    return lambda run: max(run.glob(pattern))


FILES = {
    "config.json": newest("config.json"),
    "status.json": newest("status.json"),
    "metrics.jsonl": newest("metrics.jsonl"),
    "episodes.csv": newest("episodes.csv"),
    "eval.csv": newest("eval.csv"),
    "speed.jsonl": newest("speed.jsonl"),
    "lock": newest("lock"),
    "a receipt": newest("receipts/*"),
    "newest manifest": newest("checkpoint/*.json"),
    "newest arrays": newest("checkpoint/*.safetensors"),
    "newest rows of the replay": newest("checkpoint/rows/*"),
    "older manifest": lambda run: min(run.glob("checkpoint/*.json")),
    "rows of both checkpoints": lambda run: min(run.glob("checkpoint/rows/*")),
}


def truncated(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def flipped(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def gone(path: Path, chance: random.Random) -> None:
    path.unlink()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run with two checkpoints, and the same run as it ends."""
    out = tmp_path_factory.mktemp("stopped")
    for at in (40, 65):
        run = tiny(out, halt=lambda now, at=at: now == at)
    ended = tiny(tmp_path_factory.mktemp("ended"))
    return out, run.path.relative_to(out), files(ended.path)


@pytest.mark.drill("damaged files")
@pytest.mark.parametrize("name", FILES)
def test_damage(name, stopped, tmp_path, tell):
    """Three bits, because what one means depends on where it is."""
    source, inside, ended = stopped
    chance, outcomes, lines = random.Random(name), [], []
    for number, damage in enumerate((truncated, flipped, flipped, flipped, gone)):
        out = tmp_path / str(number)
        shutil.copytree(source, out)
        hit = FILES[name](out / inside)
        damage(hit, chance)
        outcome, text = gone_on(out, hit.relative_to(out / inside), ended)
        outcomes.append(outcome)
        text = text.replace(f"{out}/", "").replace(f"{inside}/", "")
        lines += [text] if text and text not in lines else []
    told = {"truncated": outcomes[:1], "a bit flipped": outcomes[1:4], "gone": outcomes[4:]}
    kept = "; ".join(f"{what}: {' or '.join(dict.fromkeys(how))}" for what, how in told.items())
    tell(name, kept, lines[0] if lines else "nothing: it is not needed")


def gone_on(out: Path, hit: Path, ended: dict) -> tuple[str, str]:
    """How the same command ends in a damaged folder, and what is said of the damage."""
    (config, *_) = [*out.rglob("status.json"), *out.rglob("speed.jsonl")]
    named = verify_text(config.parent)
    said = io.StringIO()
    try:
        run = tiny(out, log=Console(file=said, width=500))
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return "refused", str(error)
    now = files(run.path)
    now["status.json"] = {key: now["status.json"].get(key) for key in ended["status.json"]}
    heard = [line for line in said.getvalue().splitlines() if "damaged" in line or "not as it was" in line]
    other = {file for file in ended if now.get(file) != ended[file]}
    if not other:
        return "the same end", "; ".join(heard)
    # A row changed in a log stays so, as does a receipt; a checkpoint has checksums of logs. Nothing else differs.
    manifest = max(file for file in ended if file.startswith("checkpoint/") and file.endswith(".json"))
    assert other <= {str(hit), manifest} and named, other
    return "the same end but for it", "; ".join(heard) or f"vcrl verify: {named}"


def verify_text(run: Path) -> str:
    """What `vcrl verify` finds wrong."""
    if not (run / "config.json").exists():
        return ""
    return "; ".join(f"{check.name} {check.found}" for check in verify(run) if check.state == FAILED)
