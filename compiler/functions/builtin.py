"""Importing this module fills the catalogue with everything FlowQL has built in."""

# ruff: noqa: F401 - a module registers its functions as it is imported

from __future__ import annotations

from types import ModuleType

from flowql.compiler.functions import (
    aggregates,
    arithmetic,
    bytes_functions,
    casts,
    collecting_aggregates,
    collections_functions,
    comparison,
    constructors,
    dates,
    json_functions,
    logic,
    numbers,
    regex,
    sql_arithmetic,
    sql_array_parts,
    sql_bytes,
    sql_casts,
    sql_comparison,
    sql_from_char,
    sql_interval_functions,
    sql_intervals,
    sql_jsonb,
    sql_jsonb_making,
    sql_number_patterns,
    sql_numbers,
    sql_regex,
    sql_strings,
    sql_text_casts,
    sql_times,
    sql_to_char,
    sql_zone_functions,
    statistics_aggregates,
    strings,
    sums,
)

FAMILIES = tuple(module for module in tuple(globals().values()) if isinstance(module, ModuleType))
