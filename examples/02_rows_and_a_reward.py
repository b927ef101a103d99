"""Train on rows and a reward: any list of prompts, and functions as TRL takes them.

    python examples/02_rows_and_a_reward.py

The model is made on the spot and knows nothing; "Qwen/Qwen3-0.6B" or a directory goes there too.
"""

from __future__ import annotations

import turnwise as tw

ROWS = [{"prompt": f"{a} and {b} say", "limit": 12} for a in "abcdefgh" for b in "klmnop"]


def vowels(completions: list[str], **columns) -> list[float]:
    """Reward the share of vowels."""
    return [sum(c in "aeiou" for c in text) / max(len(text), 1) for text in completions]


def brief(completions: list[str], limit: list[int], **columns) -> list[float]:
    """Punish what is longer than the row's column `limit`."""
    return [-1.0 * (len(text) > most) for text, most in zip(completions, limit, strict=True)]


def main() -> None:
    outcome = tw.train(
        tw.PolicyConfig(nano={"hidden": 64, "layers": 2}),  # or just "nano", which is larger
        ROWS,
        reward=[vowels, brief],
        reward_weights=[1.0, 0.5],
        settings={"trainer.iterations": 40, "agents.player.max_tokens": 6},
    )
    scores = outcome.scores
    run = str(outcome.run)
    assert scores is not None, f"stopped before the end: go on with tw.resume({run!r})"
    print(f"before training: {scores.baselines['warmup']:+.2f}")
    print(f"after training:  {scores.score:+.2f}, sampled {scores.score_sampled:+.2f}")
    print(f"on {scores.tasks} prompts that were held out; report: {outcome.run / 'report.md'}")


if __name__ == "__main__":
    main()
