"""What a run of many statements showed, as text."""

from __future__ import annotations

from collections import defaultdict

from tests.one_meaning.check import Difference, Outcome

REFUSALS_MAX, TEXT_MAX = 30, 1500


def report(outcome: Outcome) -> None:
    n = outcome.statements or 1
    print(f"\n{'clause':26}{'in statements':>14}{'per 20,000':>12}")
    for label, hits in sorted(outcome.hits.items()):
        print(f"{label:26}{hits / n:13.1%}{hits * 20_000 // n:12,}")
    print("\nrefused:")
    for (way, text), count in outcome.refused.most_common(REFUSALS_MAX):
        print(f"{count:6} {way:14} {text}\n       {outcome.examples[way, text][:300]}")
    print(f"\n{'way':16}{'asked':>8}{'taken':>8}")
    for way in outcome.asked:
        print(f"{way:16}{outcome.asked[way]:8}{outcome.taken[way] / outcome.asked[way]:8.1%}")
    print(
        f"\n{outcome.everywhere / n:.1%} taken on every way (subscribe apart, which has the queries of streams alone), {outcome.not_empty / n:.1%} have rows, {outcome.failed / n:.1%} fail for a row"
    )
    differing = {(d.seed, d.number) for d in outcome.differences}
    print(f"{len(differing) / n:.1%} of the statements differ somewhere")
    show(outcome.differences)


def shortest(differences: list[Difference]) -> list[Difference]:
    """The one with the shortest statement of each kind that is not known, of the most frequent kind first."""
    return [min(found, key=_length) for (known, _), found in _by_kind(differences) if not known]


def _length(d: Difference) -> int:
    return len(d.statement.text)


def _by_kind(differences: list[Difference]) -> list[tuple[tuple[str, str], list[Difference]]]:
    kinds: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for d in differences:
        kinds[d.known, d.label].append(d)
    return sorted(kinds.items(), key=lambda k: (bool(k[0][0]), -len(k[1])))


def show(differences: list[Difference]) -> None:
    """By kind, the most frequent one first, with the shortest statement of each."""
    for (known, label), found in _by_kind(differences):
        short = min(found, key=_length)
        right = f" (PostgreSQL agrees with {short.right})" if short.right else ""
        print(f"\n{len(found):5} {label}{right}{f'  KNOWN: {known}' if known else ''}")
        print(f"      seed {short.seed}, statement {short.number}: {short.statement.text[:TEXT_MAX]}")
        print("      " + short.shown[:TEXT_MAX].replace("\n", "\n      "))
