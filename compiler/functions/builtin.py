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
    conditional,
    constructors,
    dates,
    json_functions,
    lambdas,
    logic,
    logical_aggregates,
    masking,
    numbers,
    ordered_aggregates,
    regex,
    sql_arithmetic,
    sql_array_parts,
    sql_arrays,
    sql_bits,
    sql_bytes,
    sql_casts,
    sql_comparison,
    sql_degrees,
    sql_format,
    sql_from_char,
    sql_interval_functions,
    sql_intervals,
    sql_jsonb,
    sql_jsonb_making,
    sql_jsonb_order,
    sql_number_patterns,
    sql_numbers,
    sql_patterns,
    sql_regex,
    sql_series,
    sql_single_row,
    sql_sketches,
    sql_strings,
    sql_text_casts,
    sql_times,
    sql_to_char,
    sql_try,
    sql_whole_numbers,
    sql_zone_functions,
    statistics_aggregates,
    strings,
    sums,
    urls,
)

FAMILIES = tuple(module for module in tuple(globals().values()) if isinstance(module, ModuleType))
