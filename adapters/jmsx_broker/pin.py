"""`python -m jmsx_broker.pin classic|artemis`: fetch a broker's jars anew and print their hashes, as sha256sum does."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from jmsx_broker.artefacts import fetch
from jmsx_broker.java import find_java
from jmsx_broker.products import ARTEMIS, CLASSIC


def main(key: str) -> None:
    """Print a line for each jar; nothing of it is kept or run."""
    product = {product.key: product for product in (CLASSIC, ARTEMIS)}[key]
    with tempfile.TemporaryDirectory() as scratch:
        for jar in sorted(fetch(product, find_java(), Path(scratch)).glob("*.jar")):
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            sys.stdout.write(f"{digest}  {jar.name}\n")


if __name__ == "__main__":
    main(sys.argv[1])
