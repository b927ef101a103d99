"""Published scores of Prompted Policy Search (arXiv:2511.21928), as data.

Means over 10 seeds with GPT-4o and what the paper's page calls their spread. ProPS and the
baselines play 400 x 20 episodes after a warm-up of 20; the released settings of ProPS+ play fewer
on some tasks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """Mean and spread of ProPS, of ProPS+ and of the best of seven baselines, which is named."""

    props: tuple[float, float]
    props_plus: tuple[float, float]
    best_baseline: tuple[str, float, float]


PUBLISHED: dict[str, Published] = {
    "mountain-car-continuous": Published((87.21, 29.28), (89.16, 29.72), ("SAC", 86.65, 0.84)),
    "inverted-pendulum": Published((1000.0, 0.0), (1000.0, 0.0), ("TRPO", 571.31, 358.88)),
    "inverted-double-pendulum": Published(
        (128.17, 24.52), (148.39, 48.65), ("TRPO", 3609.37, 4000.04)
    ),
    "reacher": Published((-11.32, 1.37), (-18.15, 22.06), ("PPO", -7.32, 0.38)),
    "swimmer": Published((218.83, 58.45), (227.30, 56.23), ("TRPO", 52.96, 18.86)),
    "hopper": Published((284.16, 165.62), (356.22, 292.35), ("TRPO", 716.90, 385.20)),
    "walker": Published((147.17, 81.20), (126.75, 136.44), ("TRPO", 519.38, 73.15)),
    "frozen-lake": Published((0.57, 0.17), (0.19, 0.05), ("TRPO", 0.22, 0.05)),
    "cliff-walking": Published((-100.0, 0.0), (-96.40, 22.90), ("TRPO", -66.60, 13.61)),
    "maze": Published((0.55, 0.0), (0.97, 0.0), ("A2C", 0.97, 0.0)),
    "nim": Published((0.33, 0.29), (0.97, 0.09), ("A2C", 0.58, 0.10)),
    "mountain-car": Published((-126.11, 21.67), (-116.71, 15.20), ("DQN", -194.36, 1.47)),
    "navigation": Published((2587.30, 707.55), (2779.55, 270.65), ("TRPO", 4223.51, 19.70)),
    "pong": Published((2.80, 0.26), (2.99, 0.03), ("PPO", 2.29, 0.91)),
    "cart-pole": Published((478.27, 65.17), (500.0, 0.0), ("TRPO", 465.34, 62.32)),
}
