"""The protocols by name: what must agree between two scores, for every suite."""

from dataclasses import replace

from vcrl.core.protocol import Protocol
from vcrl.envs.emulator import HORIZON

ATARI_100K = Protocol(
    "atari100k", budget=100_000, action_repeat=4, horizon=HORIZON, eval_episodes=100, eval_epsilon=0.001,
    rules="minimal actions, gray maximum of the last two frames, bilinear 84x84, 1 to 30 no-ops, no fire; a lost "
    "life is followed by one no-op frame, and ends an episode in training only; the horizon is terminal",
)  # fmt: skip

DMC_100K = Protocol(
    "dmc100k", budget=100_000, unit="env steps", action_repeat=1, horizon=None, eval_episodes=10, eval_epsilon=0.0,
    rules="camera 0; an action is held for 2 env steps in finger-spin and walker-walk, 8 in cartpole-swingup, 4 "
    "elsewhere; episodes of 1000 env steps, and the time limit is no end; evaluation with the mean action",
)  # fmt: skip

# By name; a suite's own comes first.
PROTOCOLS = {
    "toy": Protocol("toy", budget=2000, action_repeat=1, horizon=None, eval_episodes=100, eval_epsilon=0.001),
    "dmc100k": DMC_100K,
    "dmc500k": replace(DMC_100K, name="dmc500k", budget=500_000),
    "gym": Protocol(
        "gym", budget=20_000, action_repeat=1, horizon=27_000, eval_episodes=10, eval_epsilon=0.001
    ),
    "atari100k": ATARI_100K,
    "atari100k-sticky": replace(ATARI_100K, name="atari100k-sticky", sticky=0.25),
}
OF_SUITE = {
    "toy": ("toy",),
    "gym": ("gym",),
    "atari": ("atari100k", "atari100k-sticky"),
    "dmc": ("dmc100k", "dmc500k"),
}
