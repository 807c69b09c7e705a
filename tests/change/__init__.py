"""The oracle of change: whatever is edited, deployed or killed, results equal those of the final files run from the beginning.

`python -m tests.change --seeds 3000`. A seed makes a project (`generate`), edits of it (`edits`) and records (`feed`); `story` deploys and
feeds them to one engine (`engine`), and after each rest `oracle` compares all places where a result can be read (`places`) with those of
a fresh engine. It knows the engine through `engine` and `plants` alone.

With `--processes` the engine is a process (`process`, `processes`, `zygote`): real threads, clock and disk, and kill -9.
"""
