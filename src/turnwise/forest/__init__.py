"""Samples become a token forest: every distinct prefix is computed once.

`choose` measures at load whether a model can be scored as trees; `micro_batches` packs samples for
the layout chosen; the scorer returns log-probabilities and entropies, one an occurrence, in the
order of `MicroBatch.sample` and `MicroBatch.position`.
"""

from turnwise.forest.batches import MicroBatch, forest_metrics, micro_batches
from turnwise.forest.choose import choose
from turnwise.forest.config import ForestConfig, Layout
from turnwise.forest.head import EntropyUse
from turnwise.forest.score import FlatScorer, Scorer, Scores, TreeScorer
from turnwise.forest.trie import Forest, build

__all__ = [
    "EntropyUse",
    "FlatScorer",
    "Forest",
    "ForestConfig",
    "Layout",
    "MicroBatch",
    "Scorer",
    "Scores",
    "TreeScorer",
    "build",
    "choose",
    "forest_metrics",
    "micro_batches",
]
