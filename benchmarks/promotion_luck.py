"""How often a rule replaces a champion by an equally good model: simulated, a night of many keys.

    python benchmarks/promotion_luck.py --keys 20_000 --rows 60

Both models have errors of one distribution, which share a part: of normal errors, of errors with
long tails, and of squared ones, which are always above. The table has the share of keys replaced by
"better by 2 %" alone, and with the paired test as well; and how many are replaced where the
challenger really is better.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from partwise.evaluation.paired import confidence
from partwise.evaluation.scores import Predicted, find_metric

BY, SURE = 0.02, 0.999


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--metric", default="rmse")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    metric, zeros = find_metric(args.metric), np.zeros(args.rows)
    print(f"{'errors':<10}{'shared':>8}{'better by':>11}{'by alone':>10}{'with test':>11}")
    worst = 0.0
    for kind, draw in ERRORS.items():
        for shared in (0.5, 0.9):
            for gain in (0.0, 0.1, 0.3):
                generator = np.random.default_rng(args.seed)
                lucky = sure = 0
                for _ in range(args.keys):
                    common, *own = draw(generator, (3, args.rows))
                    old, new = (shared**0.5 * common + (1 - shared) ** 0.5 * each for each in own)
                    one, other = (
                        Predicted(labels=zeros, predictions=each)
                        for each in (old, (1 - gain) * new)
                    )
                    before, after = metric(one), metric(other)
                    if after <= (1 - BY) * before:
                        lucky += 1
                        sure += confidence(metric, other, one) >= SURE
                if not gain:
                    worst = max(worst, sure / args.keys)
                shares = f"{lucky / args.keys:>9.2%}{sure / args.keys:>11.3%}"
                print(f"{kind:<10}{shared:>8}{gain:>11.0%} {shares}", flush=True)
    print(f"worst of equally good models: {worst:.3%} (at most 0.5 %)")
    return int(worst > 0.005)


ERRORS = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "long tails": lambda generator, shape: generator.standard_t(3, size=shape),
    "skewed": lambda generator, shape: generator.exponential(size=shape) - 1,
}

if __name__ == "__main__":
    sys.exit(main())
