"""Programs that measure FlowQL, each `python -m benchmarks.NAME` in the root of a checkout. No part of the product: `flowql/bench` is."""
