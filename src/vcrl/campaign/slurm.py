"""The same plan as a SLURM array: one task a run."""

import math
import shlex
import sys

from vcrl.campaign.plan import Campaign
from vcrl.campaign.view import forecast_text

MARGIN = 1.5  # of the time limit over the forecast, and a quarter of an hour more
WARNING = 180  # seconds before the limit at which a run is told to save


def script(campaign: Campaign) -> str:
    """Runs resume, so a task may be requeued at any time: by SLURM, or by itself when its time is up."""
    ask, todo = campaign.ask, campaign.todo
    hours = max((job.seconds for job in todo), default=0.0) * MARGIN + 900
    gpu = ["#SBATCH --gres=gpu:1"] if campaign.machine.gpus else []
    memory = max((len(job.seeds) * job.what.need for job in todo), default=0) / 1e9
    cases = [
        f"{i}) set -- {shlex.join(ask.words(job.what.method, job.what.task, job.seeds, job.what.digest))} ;;"
        for i, job in enumerate(todo)
    ]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={ask.name}",
            f"#SBATCH --array=0-{len(todo) - 1}",
            f"#SBATCH --time={limit(hours)}",
            *gpu,
            f"#SBATCH --cpus-per-task={campaign.machine.cores}",
            f"#SBATCH --mem={math.ceil(2 * memory + 4)}G",
            "#SBATCH --requeue",
            "#SBATCH --open-mode=append",
            f"#SBATCH --signal=B:USR1@{WARNING}",
            f"#SBATCH --output={ask.folder}/%A_%a.log",
            *(f"# {line}" for line in forecast_text(campaign).splitlines()),
            f"# SLURM wants the folder of its logs to exist: mkdir -p {shlex.quote(str(ask.folder))}",
            "set -u",
            *([] if campaign.machine.gpus else ["export JAX_PLATFORMS=cpu"]),
            "case $SLURM_ARRAY_TASK_ID in",
            *cases,
            '*) echo "no run $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;',
            "esac",
            f'{shlex.quote(sys.executable)} -m vcrl.cli "$@" &',
            "run=$!",
            "again=0",
            "trap 'again=1; kill -TERM $run' USR1  # nearly out of time: the run saves and ends",
            "trap 'kill -TERM $run' TERM",
            "wait $run; code=$?",
            "# A signal ends the waiting early; the run is still saving then.",
            "while kill -0 $run 2>/dev/null; do wait $run; code=$?; done",
            'if [ "$again" = 1 ] && [ "$code" != 0 ]; then',
            '  scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"',
            "fi",
            "exit $code",
            "",
        ]
    )


def limit(seconds: float) -> str:
    """hours:minutes:seconds, to the next quarter of an hour."""
    quarters = math.ceil(seconds / 900)
    return f"{quarters // 4:02}:{quarters % 4 * 15:02}:00"
