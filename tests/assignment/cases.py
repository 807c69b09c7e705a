"""Values that are written to columns, as SQL, and what PostgreSQL 15 stores.

A stored value is the text of `CAST(v AS TEXT)` in UTC, `null` for NULL; `refused` where PostgreSQL takes neither the type nor the value.
`python -m tests.assignment.postgres` writes the answers again.
"""

from __future__ import annotations

# (way, column, expression) of differences: answers of a query do not tell JSONB, UUID and INTERVAL from strings.
FINER = {
    ("SELECT", "JSONB", "CAST('1' AS TEXT)"),
    ("SELECT", "UUID", "CAST('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AS TEXT)"),
    ("SELECT", "TEXT", "INTERVAL '1' DAY"),
    ("SELECT", "INTERVAL", "'2 hours'"),
    ("stream", "VARCHAR(3)", "'abcd'"),  # records of topics have no length
    ("stream", "VARCHAR(3)", "1234"),
}

# Type of the column -> expression -> what PostgreSQL stores.
EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "INT": (
        *(
            "2.7",
            "2.5",
            "3.5",
            "-2.5",
            "CAST(2.5 AS DOUBLE PRECISION)",
            "CAST(3.5 AS DOUBLE PRECISION)",
            "3e9",
            "2147483648",
        ),
        *("CAST(3e9 AS DOUBLE PRECISION)", "CAST('NaN' AS DOUBLE PRECISION)", "2147483647.4", "2147483647.5", "NULL"),
        *("'12'", "' 12 '", "'2.7'", "'abc'", "''", "TRUE", "DATE '2024-01-01'", "CAST('12' AS TEXT)"),
    ),
    "BIGINT": (
        "9223372036854775807",
        "9223372036854775807.4",
        "9223372036854775807.5",
        "1e19",
        "'9223372036854775808'",
        "1.5",
    ),
    "NUMERIC(5, 2)": (
        *(
            "123.456",
            "-0.005",
            "999.994",
            "999.995",
            "1000",
            "CAST(1.005 AS DOUBLE PRECISION)",
            "CAST(2.675 AS DOUBLE PRECISION)",
        ),
        *("'12.345'", "'1e2'", "' 7 '", "'x'", "'1000'", "TRUE", "CAST('1' AS TEXT)"),
    ),
    "DOUBLE PRECISION": (
        "1",
        "0.1",
        "'NaN'",
        "'-Infinity'",
        "'1e400'",
        "'1.5'",
        "'1.5f'",
        "FALSE",
        "12345678901234567890.5",
    ),
    "TEXT": (
        *(
            "12",
            "1.50",
            "TRUE",
            "DATE '2024-01-02'",
            "TIMESTAMP '2024-01-02 03:04:05'",
            "TIME '03:04'",
            "ARRAY[1, 2]",
            "'  a '",
        ),
        *(
            "CAST(1e20 AS DOUBLE PRECISION)",
            "CAST(0.1 AS DOUBLE PRECISION)",
            "CAST('\\x61' AS BYTEA)",
            "INTERVAL '1' DAY",
        ),
    ),
    "VARCHAR(3)": ("'abc'", "'abcd'", "'äöü'", "123", "1234", "''", "NULL"),
    "BOOLEAN": ("TRUE", "'yes'", "' off '", "'maybe'", "'2'", "1", "0.5", "CAST('yes' AS TEXT)"),
    "DATE": (
        *(
            "'2024-02-29'",
            "'2023-02-29'",
            "DATE '2024-01-01'",
            "TIMESTAMP '2024-01-01 23:59:59'",
            "TIMESTAMPTZ '2024-01-01 23:59:59+00'",
        ),
        *("'2024-01-01 10:00'", "1", "CAST('2024-01-01' AS TEXT)", "'soon'"),
    ),
    "TIMESTAMP(3)": (
        *(
            "'2024-01-01 12:00:00+02'",
            "TIMESTAMPTZ '2024-01-01 12:00:00+02'",
            "DATE '2024-01-01'",
            "'2024-01-01'",
            "'soon'",
            "5",
        ),
        *("TIMESTAMP '2024-01-01 12:00:00.123'", "TIME '12:00'", "'1969-12-31 23:59:59.999'"),
    ),
    "TIMESTAMPTZ(3)": (
        *(
            "'2024-01-01 12:00:00+02'",
            "'2024-01-01 12:00:00'",
            "TIMESTAMP '2024-01-01 12:00:00'",
            "DATE '2024-01-01'",
            "1704067200000",
        ),
    ),
    "TIME": (
        "'12:34'",
        "'25:00'",
        "TIMESTAMP '2024-01-01 12:34:56'",
        "TIMESTAMPTZ '2024-01-01 12:34:56+00'",
        "DATE '2024-01-01'",
        "1",
    ),
    "JSONB": ("""'{"b": 1, "a": [1, 2]}'""", "'{'", "1", "CAST('1' AS TEXT)", "'null'", "NULL", "to_jsonb(1)"),
    "UUID": (
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        "'a0eebc99'",
        "1",
        "CAST('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AS TEXT)",
    ),
    "BYTEA": ("'\\x6162'", "'ab'", "'\\x6'", "1", "CAST('a' AS TEXT)"),
    "INT[]": (
        *(
            "'{1,NULL,3}'",
            "'{1,x}'",
            "ARRAY[2.5, 2.7]",
            "ARRAY[CAST(2.5 AS DOUBLE PRECISION)]",
            "ARRAY[3e9]",
            "ARRAY[1, NULL]",
            "'1'",
            "1",
        ),
        "CAST(ARRAY[1.5, 2.5] AS NUMERIC(5, 1)[])",
    ),
    "NUMERIC(3, 1)[]": ("ARRAY[1, 2]", "ARRAY[99.95]", "ARRAY[CAST(1.25 AS DOUBLE PRECISION)]", "'{1.25}'"),
    "TEXT[]": ("ARRAY[1, 2]", "ARRAY[TRUE]", "'{a,\"b c\"}'"),
    "INTERVAL": ("INTERVAL '1' DAY", "'2 hours'", "'x'", "5", "CAST('1 day' AS TEXT)"),
}
