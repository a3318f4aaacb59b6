"""
Latency as counts in logarithmic buckets: two histograms add up, two percentiles do not.

Bucket `b` holds the values in (GAMMA^(b-1), GAMMA^b] microseconds, bucket -1 all that is not above
zero (a broker's clock may be behind ours). Any percentile read from it is within 1 % of the nearest
rank, whatever was merged before; plain SQL, so every engine gets the same number.
Source: the DDSketch paper (Masson, Rim, Lee: VLDB 2019), without its collapsing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

#: Growth of the buckets: an error of (GAMMA - 1) / (GAMMA + 1), which is 0.99 %.
GAMMA: Final = 1.02
_BELOW: Final = -1


def bucket(microseconds: Column) -> Column:
    """Find the bucket of a duration in microseconds; null stays null."""
    grown = sf.ceil(sf.log(microseconds.cast("double")) / math.log(GAMMA)).cast("int")
    return sf.when(microseconds > 0, grown).when(microseconds.isNotNull(), sf.lit(_BELOW))


def value(of_bucket: Column) -> Column:
    """Tell the duration, in microseconds, that stands for a bucket."""
    middle = sf.pow(sf.lit(GAMMA), of_bucket) * (2 / (GAMMA + 1))
    return sf.when(of_bucket == _BELOW, sf.lit(0.0)).otherwise(middle)


def gathered(names: Iterable[str]) -> list[Column]:
    """
    Aggregate rows with `measure`, `bucket` and `n` into one column `{name}_histogram` a measure.

    Each is array<struct<bucket: int, n: bigint>>, sorted by bucket.
    """
    filled = sf.col("bucket").isNotNull()
    return [
        sf.array_sort(
            sf.collect_list(sf.when(filled & (sf.col("measure") == name), sf.struct("bucket", "n")))
        ).alias(f"{name}_histogram")
        for name in names
    ]


def spread(frame: DataFrame, by: list[str], names: Iterable[str]) -> DataFrame:
    """Spread each `{name}_histogram` into rows of (`by`, measure, bucket, n); the inverse."""
    histograms = sf.array(
        *(
            sf.struct(sf.lit(name).alias("measure"), sf.col(f"{name}_histogram").alias("histogram"))
            for name in names
        )
    )
    each = frame.select(*by, sf.inline(histograms))
    return each.select(*by, "measure", sf.inline("histogram"))


def percentile(histogram: str, permille: int) -> Column:
    """Read the `permille`/1000 quantile (nearest rank) off the column `histogram`, in microseconds."""
    # As SQL text: built from Column objects, this costs a tenth of a second each before it runs.
    total = f"aggregate({histogram}, 0L, (sum, item) -> sum + item.n)"
    at = sf.expr(f"""
        aggregate(
            {histogram},
            named_struct('left', ({total} * {permille} + 999) div 1000, 'at', cast(null AS int)),
            (state, item) -> named_struct(
                'left', state.left - item.n,
                'at', if(state.at IS NULL AND state.left <= item.n, item.bucket, state.at)
            ),
            state -> state.at
        )
    """)
    return value(at)
