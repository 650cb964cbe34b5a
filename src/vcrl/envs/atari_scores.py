"""What random play and a human score in the 26 games of Atari 100k.

The one home of these numbers: the environments, the tables of the paper and every human-normalised score read
them here. They are those of Wang et al. 2016 (https://arxiv.org/abs/1511.06581, humans on 30 no-op starts),
which every Atari 100k paper divides by.
"""

# name: (random, human), raw game score
SCORES: dict[str, tuple[float, float]] = {
    "alien": (227.8, 7127.7),
    "amidar": (5.8, 1719.5),
    "assault": (222.4, 742.0),
    "asterix": (210.0, 8503.3),
    "bank-heist": (14.2, 753.1),
    "battle-zone": (2360.0, 37187.5),
    "boxing": (0.1, 12.1),
    "breakout": (1.7, 30.5),
    "chopper-command": (811.0, 7387.8),
    "crazy-climber": (10780.5, 35829.4),
    "demon-attack": (152.1, 1971.0),
    "freeway": (0.0, 29.6),
    "frostbite": (65.2, 4334.7),
    "gopher": (257.6, 2412.5),
    "hero": (1027.0, 30826.4),
    "jamesbond": (29.0, 302.8),
    "kangaroo": (52.0, 3035.0),
    "krull": (1598.0, 2665.5),
    "kung-fu-master": (258.5, 22736.3),
    "ms-pacman": (307.3, 6951.6),
    "pong": (-20.7, 14.6),
    "private-eye": (24.9, 69571.3),
    "qbert": (163.9, 13455.0),
    "road-runner": (11.5, 7845.0),
    "seaquest": (68.4, 42054.7),
    "up-n-down": (533.4, 11693.2),
}
