"""Token forests: training rows merged so that every distinct prefix is computed once.

`choose` measures at load whether a model can be scored as trees. `micro_batches` packs samples in
the chosen layout. A scorer returns one log-probability and one entropy for each occurrence, in the
order of `MicroBatch.row` and `MicroBatch.position`.
"""

from typing import TYPE_CHECKING

from turnwise.utils.lazy_imports import lazy_names

if TYPE_CHECKING:
    from turnwise.forest.batches import MicroBatch, forest_metrics, micro_batches
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
    "forest_metrics",
    "micro_batches",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "EntropyUse": "turnwise.forest.head",
        "FlatScorer": "turnwise.forest.score",
        "Forest": "turnwise.forest.trie",
        "ForestConfig": "turnwise.forest.config",
        "Layout": "turnwise.forest.config",
        "MicroBatch": "turnwise.forest.batches",
        "Scorer": "turnwise.forest.score",
        "Scores": "turnwise.forest.score",
        "TreeScorer": "turnwise.forest.score",
        "build": "turnwise.forest.trie",
        "forest_metrics": "turnwise.forest.batches",
        "micro_batches": "turnwise.forest.batches",
    },
)
