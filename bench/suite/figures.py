"""Numbers from several rounds: medians, spreads, and ratios taken within each round."""
import statistics

WIDE = 0.25  # a spread above this share of the median: the row says so


def quantile(values, share):
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


class Figure:
    """The values of all rounds: their median, and where the middle half of them lies."""

    def __init__(self, values):
        self.values = list(values)
        self.median = statistics.median(self.values)
        self.low, self.high = quantile(self.values, 0.25), quantile(self.values, 0.75)

    @property
    def spread(self):
        return (self.high - self.low) / abs(self.median) if self.median else 0.0

    @property
    def is_wide(self):
        return len(self.values) > 1 and self.spread > WIDE


def confidence(values):
    """Where the true median is, in at least 95 of 100 cases: by the ranks of the values, so nothing is assumed of
    how they are distributed. From fewer than ENOUGH values nothing so certain can be said."""
    ordered, count = sorted(values), len(values)
    below, outside = 0, 2.0 ** -count
    term = outside
    while below < count // 2 - 1:
        term = term * (count - below) / (below + 1)  # the next binomial coefficient
        if outside + term > 0.025:
            break
        outside += term
        below += 1
    return ordered[below], ordered[count - 1 - below]


def ratios(ours, theirs):
    """Round by round, so that what disturbs both does not count."""
    return [a / b for a, b in zip(ours, theirs) if b]


PASS, MISS, OPEN, FEW, NONE = "pass", "miss", "within the spread", "too few rounds to tell", "not measured"
ENOUGH = 6  # rounds


def verdict(values, limit):
    """Whether the median of those is at most the limit, as far as they can tell."""
    if len(values) < ENOUGH:
        return FEW
    low, high = confidence(values)
    if high <= limit:
        return PASS
    return MISS if low > limit else OPEN
