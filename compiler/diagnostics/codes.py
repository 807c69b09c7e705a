"""The registry of diagnostic codes: what `flowql explain FQ####` shows.

FQ1xxx syntax, FQ2xxx names, types and meaning of SQL, FQ3xxx project files, FQ4xxx runtime, log and state
(FQ41xx Spark), FQ5xxx commands.
A code never changes its meaning and is never given again; a range's numbers need not be dense.
"""

from __future__ import annotations

from flowql.compiler.diagnostics.application_codes import APPLICATION_CODES
from flowql.compiler.diagnostics.engine_codes import ENGINE_CODES
from flowql.compiler.diagnostics.page import CodePage as CodePage
from flowql.compiler.diagnostics.project_codes import PROJECT_CODES
from flowql.compiler.diagnostics.query_codes import QUERY_CODES
from flowql.compiler.diagnostics.spark_codes import SPARK_CODES

CODES: dict[str, CodePage] = {
    "FQ1001": CodePage(
        "Something else was expected here",
        "The text does not follow the grammar at this place. The message names the expected and the actual text. "
        "Parsing continues after the next semicolon, so there is one message per statement.",
        "SELECT id FORM orders;",
        "SELECT id FROM orders;",
    ),
    "FQ1002": CodePage(
        "A quote or comment is never closed",
        "A text in single quotes, a name in back-ticks or double quotes, or a /* comment */ has no end. "
        "A single quote inside a text is doubled; a backslash is an ordinary character.",
        "SELECT 'it's' FROM s;",
        "SELECT 'it''s' FROM s;",
    ),
    "FQ1003": CodePage(
        "A clause stands where it cannot",
        "The clauses of a query have one order: SELECT, FROM, JOIN ... WITHIN ... ON, WINDOW, WHERE, GROUP BY, "
        "PARTITION BY, HAVING, EMIT, LIMIT. Each is given at most once.",
        "SELECT id FROM orders EMIT CHANGES WHERE id > 1;",
        "SELECT id FROM orders WHERE id > 1 EMIT CHANGES;",
    ),
    "FQ1004": CodePage(
        "A number is out of range or malformed",
        "Whole numbers are INT up to 32 bits and BIGINT up to 64; with a point they are DECIMAL; with an exponent they "
        "are DOUBLE. A literal that does not fit is refused rather than rounded.",
        "SELECT 9223372036854775808 FROM s;",
        "SELECT 9223372036854775808.0 FROM s;",
    ),
    "FQ1005": CodePage(
        "A reserved word is used as a name",
        "Words such as SELECT, FROM or GROUP cannot be names unless quoted. A quoted name keeps its case.",
        "SELECT group FROM orders;",
        "SELECT `GROUP` FROM orders;",
    ),
    "FQ1006": CodePage(
        "A variable is not defined",
        "${name} is replaced by the value given by DEFINE, by `vars` in flowql.yaml, or by --var. "
        "Names of variables ignore case.",
        "CREATE STREAM s WITH (kafka_topic='t', partitions=${parts}, value_format='JSON');",
        "DEFINE parts = '3';\nCREATE STREAM s WITH (kafka_topic='t', partitions=${parts}, value_format='JSON');",
    ),
    "FQ1007": CodePage(
        "This is not a type",
        "Types are BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(precision, scale), STRING, BYTES, DATE, TIME, TIMESTAMP, "
        "ARRAY<...>, MAP<..., ...>, STRUCT<name ..., ...>, and those made with CREATE TYPE.",
        "CREATE STREAM s (price DECIMAL) WITH (...);",
        "CREATE STREAM s (price DECIMAL(10, 2)) WITH (...);",
    ),
    "FQ1008": CodePage(
        "A semicolon is missing",
        "A new statement begins although the one before it was not closed by a semicolon.",
        "DROP STREAM a\nDROP STREAM b;",
        "DROP STREAM a;\nDROP STREAM b;",
    ),
    "FQ1009": CodePage(
        "A duration is malformed",
        "A window, WITHIN, GRACE PERIOD or RETENTION takes a whole number and a unit of fixed length: MILLISECONDS, "
        "SECONDS, MINUTES, HOURS or DAYS. Sizes must be positive.",
        "WINDOW TUMBLING (SIZE 0 SECONDS)",
        "WINDOW TUMBLING (SIZE 10 SECONDS)",
    ),
    "FQ1010": CodePage(
        "A function call in FROM",
        "FROM and JOIN take the names of streams and tables. A table function such as EXPLODE is called in the select "
        "list, where it makes several rows of one.",
        "SELECT * FROM EXPLODE(items);",
        "SELECT EXPLODE(items) FROM orders;",
    ),
    "FQ1011": CodePage(
        "KEY and PRIMARY KEY are mixed up",
        "The key of a table identifies one row that later records replace: it is a PRIMARY KEY. The key of a stream "
        "only says where a record belongs: it is a KEY.",
        "CREATE TABLE users (id INT KEY, name STRING) WITH (...);",
        "CREATE TABLE users (id INT PRIMARY KEY, name STRING) WITH (...);",
    ),
    "FQ1012": CodePage(
        "The window properties of a source contradict each other",
        "A topic with windowed keys is declared with WINDOW_TYPE. TUMBLING and HOPPING need WINDOW_SIZE; "
        "a SESSION has no fixed size.",
        "WITH (window_type='SESSION', window_size='30 SECONDS', ...)",
        "WITH (window_type='SESSION', ...)",
    ),
    "FQ1013": CodePage(
        "The expression is nested too deeply",
        "Parentheses, calls, types and sub-queries may be nested some 40 deep, and operators may stand 200 in a row. Split the "
        "expression over two streams or views, or flatten it.",
    ),
    "FQ1014": CodePage(
        "A window function without its group",
        "TUMBLE, HOP, CUMULATE and SESSION in FROM give every row the windows it falls in. A query over them groups by the "
        "window: GROUP BY names window_start and window_end, beside other columns.",
        "SELECT k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY k;",
        "SELECT k, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
        "GROUP BY k, window_start, window_end;",
    ),
    "FQ1015": CodePage(
        "The statement is too long",
        "A statement of standard SQL has at most 16 MiB. Rows are inserted by several statements.",
    ),
    "FQ1016": CodePage(
        "A construct of another dialect has no translation",
        "`flowql import sql` translates what it knows the meaning of. All else is listed with its place and the reason, and its statement "
        "is left out: docs/reference/import_sql.md says what is translated.",
        "SELECT OBJECT_CONSTRUCT('id', id) FROM orders",
        "SELECT JSONB_BUILD_OBJECT('id', id) FROM orders",
    ),
    "FQ1017": CodePage(
        "A translated statement does not compile",
        "`flowql import sql` compiles each statement that it has translated, after those before it. One that FlowQL refuses is listed with "
        "the compiler's reason. A statement that reads a table whose own statement is listed is refused, too.",
        "CREATE VIEW last AS SELECT customer, id FROM orders GROUP BY customer",
        "CREATE VIEW last AS SELECT customer, MAX(id) AS id FROM orders GROUP BY customer",
    ),
    "FQ1901": CodePage(
        "Valid, but not supported yet",
        "The construct is part of the language, or the key part of flowql.yaml, and FlowQL does not build it yet. This is not a "
        "mistake of yours; "
        "the message names another way where there is one.",
    ),
    "FQ2001": CodePage(
        "A stream, table, type or alias of that name does not exist",
        "Names fold to upper case unless quoted. A source must be created before it is read, anywhere in the project; "
        "inside a query a source with an alias is named by the alias only.",
        "SELECT * FROM oders;",
        "SELECT * FROM orders;",
    ),
    "FQ2002": CodePage(
        "A column or struct field of that name does not exist",
        "The message names the clause and the existing columns. WINDOWSTART and WINDOWEND exist in the SELECT list of windowed "
        "aggregations and for sources with a windowed key.",
    ),
    "FQ2003": CodePage(
        "A column is in several sources of the join",
        "Put the alias of the source in front of the column.",
        "SELECT id FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id;",
        "SELECT a.id FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id;",
    ),
    "FQ2004": CodePage(
        "A name is used twice",
        "Columns of one schema, fields of one struct, aliases of one query and expressions of one GROUP BY differ.",
    ),
    "FQ2005": CodePage(
        "The types do not fit",
        "Numbers widen by themselves (INT to BIGINT to DECIMAL to DOUBLE) and literals adapt to what they are compared "
        "with; everything else needs an explicit CAST.",
        "WHERE name > 3",
        "WHERE CAST(name AS INT) > 3",
    ),
    "FQ2006": CodePage(
        "There is no function of that name",
        "The message names functions that are spelt alike. A Python function of the project is known when `functions:` of flowql.yaml "
        "names its module, without .py.",
        "SELECT half(km) FROM rides;",
        "functions: [scoring]   # flowql.yaml; scoring.py has  @flowql.udf def half(x: float) -> float",
    ),
    "FQ2007": CodePage(
        "A condition is not BOOLEAN",
        "WHERE, HAVING and WHEN take conditions.",
        "WHERE amount",
        "WHERE amount > 0",
    ),
    "FQ2008": CodePage(
        "A reserved name",
        "ROWTIME, ROWPARTITION, ROWOFFSET, WINDOWSTART and WINDOWEND are given by the system and cannot name columns; "
        "to put one into a result give it an alias. The table and the topic __no_rows are the system's, too.",
        "SELECT id, ROWTIME FROM s;",
        "SELECT id, ROWTIME AS ts FROM s;",
    ),
    "FQ2010": CodePage("An unknown or repeated property in WITH", "The message lists the properties known here."),
    "FQ2011": CodePage("The value of a property cannot be used", "The message says what the property takes."),
    "FQ2012": CodePage("There is no format of that name", "Formats are JSON, DELIMITED, KAFKA and NONE."),
    "FQ2013": CodePage(
        "The format cannot hold these columns",
        "KAFKA holds one INT, BIGINT, DOUBLE, STRING or BYTES; DELIMITED no arrays, maps or structs; JSON only maps with "
        "STRING keys; NONE nothing. No key may hold a map, as equal maps can be written differently.",
    ),
    "FQ2014": CodePage(
        "Something a source needs is missing",
        "A source needs columns, KAFKA_TOPIC and VALUE_FORMAT (or a default in the session).",
    ),
    "FQ2015": CodePage(
        "The schema is not in the registry",
        "Without columns a source takes them from the schema that is registered for its topic (subject TOPIC-key or "
        "TOPIC-value), or for the id in KEY_SCHEMA_ID or VALUE_SCHEMA_ID. There is none, it is of another format, or it has no "
        "message of the name in KEY_SCHEMA_FULL_NAME or VALUE_SCHEMA_FULL_NAME.",
        "CREATE STREAM s WITH (kafka_topic='new', value_format='AVRO')",
        "CREATE STREAM s (id INT KEY, name STRING) WITH (kafka_topic='new', value_format='AVRO')",
    ),
    "FQ2016": CodePage(
        "The registered schema has no SQL columns",
        "It holds something that no SQL type can, such as a message that contains itself, or it is a single value: "
        "WRAP_SINGLE_VALUE=false reads that as the column ROWVAL.",
    ),
    "FQ2017": CodePage(
        "The schema of that id has other columns",
        "A query that writes with VALUE_SCHEMA_ID or KEY_SCHEMA_ID gives the columns of that schema, by its names, with its types "
        "and in its order. Columns that the schema has beyond them get their default.",
    ),
    "FQ2018": CodePage(
        "A query statement among definitions",
        "The files of a project define objects and continuous queries. SELECT, SHOW, LIST, DESCRIBE, EXPLAIN and PRINT only read, and "
        "belong to the shell or to `flowql query`.",
    ),
    "FQ2020": CodePage(
        "An aggregate, table function or window in the wrong place",
        "Aggregates stand in SELECT and HAVING of a query with GROUP BY and are not nested; table functions stand in "
        "SELECT without GROUP BY; window bounds stand in SELECT of windowed aggregations.",
    ),
    "FQ2021": CodePage(
        "A column is neither grouped nor aggregated",
        "Rows of one group may have different values of it.",
        "SELECT a, b, COUNT(*) FROM s GROUP BY a;",
        "SELECT a, MAX(b), COUNT(*) FROM s GROUP BY a;",
    ),
    "FQ2022": CodePage(
        "The key is missing",
        "A result keeps its key: the key column, the grouping or partitioning expression or the join column must be in "
        "the SELECT list. A table has a PRIMARY KEY.",
        "SELECT COUNT(*) FROM s GROUP BY a;",
        "SELECT a, COUNT(*) FROM s GROUP BY a;",
    ),
    "FQ2023": CodePage(
        "The key is selected twice",
        "One of the columns becomes the key of the result. Copy it into the value with AS_VALUE.",
        "SELECT id, id AS id2, v FROM s;",
        "SELECT id, AS_VALUE(id) AS id2, v FROM s;",
    ),
    "FQ2024": CodePage("The result has no value columns", "Only key columns are selected; add a column."),
    "FQ2025": CodePage(
        "A stream stands where a table belongs, or the reverse",
        "Aggregations and queries over tables give tables, everything else gives streams. PARTITION BY and table functions "
        "take streams. EMIT FINAL needs a window.",
    ),
    "FQ2026": CodePage(
        "An expression fails for every row",
        "Constants are evaluated when a statement is compiled. One that has no value, such as a division by zero, a date that is not in the "
        "calendar, a text that is not of the type it is cast to, or a pattern that is no regular expression, would be NULL in "
        "every row, and every row would be noted in the dead letters.",
        "SELECT id, DATE '2024-13-01' AS day FROM orders;",
        "SELECT id, DATE '2024-12-01' AS day FROM orders;",
    ),
    "FQ2027": CodePage(
        "A value has to be the same again",
        "A key says where a record belongs, also when it is processed again after a failure. When a row of a table changes or goes, its old "
        "value is computed again to take it out of aggregates and views. So neither is computed by a function that gives another value each "
        "time: RANDOM(), UUID(), the time of day without an argument, or one of yours with deterministic=False. A column of a stream is "
        "computed once and stored.",
        "CREATE STREAM spread AS SELECT * FROM orders PARTITION BY UUID();",
        "CREATE STREAM numbered AS SELECT *, UUID() AS place FROM orders;\nCREATE STREAM spread AS SELECT * FROM numbered PARTITION BY place;",
    ),
    "FQ2030": CodePage(
        "The join condition cannot be used",
        "A join is on equality of one expression of each side, of one type; a table on the right is joined on its primary "
        "key; windowed sources are joined on their keys.",
    ),
    "FQ2031": CodePage(
        "This kind of join does not exist",
        "Stream-table joins are INNER or LEFT with the stream first; WITHIN is for two streams.",
    ),
    "FQ2040": CodePage("This cannot be inserted", "The message names the target and the columns that differ."),
    "FQ2041": CodePage(
        "These rows cannot be changed",
        "INSERT, UPDATE and DELETE change the rows of tables of one's own: tables that are created without KAFKA_TOPIC. The rows of a "
        "view are those of its query, and records in a topic of another system belong to that system. A table that is created "
        "with APPEND ONLY takes new rows and keeps them.",
        "CREATE TABLE t (a INT PRIMARY KEY) APPEND ONLY;\nDELETE FROM t;",
        "CREATE TABLE t (a INT PRIMARY KEY);\nDELETE FROM t;",
    ),
    "FQ2050": CodePage("The name is taken", "A name is defined once in a project, unless with OR REPLACE."),
    "FQ2051": CodePage("The source is in use", "Queries read it; end them first."),
    "FQ2052": CodePage(
        "The replacement is not compatible",
        "A replacement keeps kind, key and columns and may add columns, because others rely on them.",
    ),
    "FQ2053": CodePage("A stream is no table", "DROP STREAM drops streams, DROP TABLE drops tables."),
    "FQ2054": CodePage(
        "There is no query of that id",
        "TERMINATE, PAUSE and RESUME name a query by its id: CSAS_NAME or CTAS_NAME after what it makes, INSERT_NAME_1 after "
        "what it inserts into, or the QUERY_ID it was given. The number at the end of an id of ksqlDB may be left on.",
        "CREATE STREAM big AS SELECT * FROM orders WHERE amount > 100;\nPAUSE big;",
        "CREATE STREAM big AS SELECT * FROM orders WHERE amount > 100;\nPAUSE CSAS_BIG;",
    ),
    "FQ2055": CodePage(
        "EMIT ON WINDOW CLOSE, or FOR SYSTEM_TIME AS OF a time, of rows that are never closed",
        "A row is closed when no later row can change it. That is known of rows with a time that follows the WATERMARK of a source: its time "
        "column itself, the bounds of TUMBLE and HOP over it, and what keeps them: groups, PARTITION BY, ranks in the order of time, and joins "
        "whose condition says how far the times of both sides may be apart. FOR SYSTEM_TIME AS OF such a time joins a row when it is closed; the "
        "right side is a source with a WATERMARK of its own.",
        "CREATE TABLE t (ts TIMESTAMP, a INT) APPEND ONLY;\nCREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a EMIT ON WINDOW CLOSE;",
        "CREATE TABLE t (ts TIMESTAMP, a INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) APPEND ONLY;\n"
        "CREATE MATERIALIZED VIEW v AS SELECT window_start, a, count(*) AS n FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) GROUP BY window_start, a EMIT ON WINDOW CLOSE;",
    ),
    "FQ2060": CodePage(
        "Joined sources have different numbers of partitions",
        "Rows of one key would be in different tasks. Copy one of the sources with another PARTITIONS first.",
    ),
    "FQ2061": CodePage(
        "A pattern has a construct that is not supported",
        "Patterns run on an engine whose time grows with the length of a string alone, so that no record can hold up an instance. Such an engine has "
        "no look-ahead and look-behind, back-references, possessive quantifiers (`a++`) and atomic groups (`(?>a)`). The message names the construct. "
        "The page on patterns lists what each dialect has.",
        "CREATE STREAM q AS SELECT * FROM s WHERE REGEXP_LIKE(name, '(?=.*[0-9])(?=.*[a-z]).*');",
        "CREATE STREAM q AS SELECT * FROM s WHERE REGEXP_LIKE(name, '[0-9]') AND REGEXP_LIKE(name, '[a-z]');",
    ),
    "FQ2062": CodePage(
        "A pattern is not valid",
        "The message says at which character of the pattern. ksqlDB's dialect has the syntax of Java, standard SQL that of PostgreSQL; REGEXP_EXTRACT and "
        "REGEXP_EXTRACT_ALL have Java's in both.",
        "CREATE STREAM q AS SELECT * FROM s WHERE REGEXP_LIKE(name, '(a');",
        "CREATE STREAM q AS SELECT * FROM s WHERE REGEXP_LIKE(name, '\\(a');",
    ),
    "FQ2063": CodePage(
        "A pattern is too large",
        "A pattern has at most 5,000 characters, 100 groups and repetitions of 1,000 times; its program, in which repetitions are written out, has "
        "at most 20,000 instructions and needs at most 8 MiB.",
        "CREATE STREAM q AS SELECT * FROM s WHERE REGEXP_LIKE(name, '((a{1000}){1000}){9}');",
        "CREATE STREAM q AS SELECT * FROM s WHERE REGEXP_LIKE(name, 'a{1000}');",
    ),
    "FQ2064": CodePage(
        "PostgreSQL may take another match of a pattern",
        "Where a pattern matches in several ways at one place, PostgreSQL takes the longest match, and the engine the one that the pattern tries "
        "first. A pattern whose match is taken (REGEXP_MATCH, REGEXP_REPLACE, REGEXP_SUBSTR and others) is refused where these may differ. Write "
        "longer alternatives first and classes of characters that exclude what follows. `~` and REGEXP_LIKE, which only ask for a match, take any pattern.",
        "SELECT REGEXP_SUBSTR(name, 'a?(ab)?') AS x FROM s;",
        "SELECT REGEXP_SUBSTR(name, 'aab|ab|a') AS x FROM s;",
    ),
    "FQ2065": CodePage(
        "The statement is too large",
        "A statement other than a list of rows has at most 10,000 words and signs, and an interactive query at most 256 KiB. The statements of one request to an "
        "instance (`execute`, a subscription) have 10,000 together, and their rows of INSERT 60,000. A running instance compiles "
        "statements on the interpreter that all its queries share, so a text without limit would stop them. Split the statement into several views, or "
        "insert long lists of values into a table and join it.",
        "SELECT * FROM orders WHERE id IN (1, 2, 3);      -- with 100,000 numbers",
        "CREATE TABLE wanted (id BIGINT PRIMARY KEY);\nINSERT INTO wanted VALUES (1), (2), (3);\n"
        "CREATE MATERIALIZED VIEW v AS SELECT o.* FROM orders o JOIN wanted w ON o.id = w.id;",
    ),
    "FQ2066": CodePage(
        "The plan of the statement is too deep",
        "The plan has an operator on top of an operator for each join, sub-query, UNION and condition, and hundreds of them do not fit the stack of "
        "the compiler. Nothing was changed. Split the statement into several views, or write conditions such as a = 1 OR a = 2 as a IN (1, 2).",
    ),
    "FQ2070": CodePage("Definitions form a cycle", "Each needs the next; none could be started first."),
    "FQ2071": CodePage(
        "A topology of processors does not fit the project's SQL",
        "Sources and sinks of a topology name streams and tables that the project's SQL declares. A sink writes one over a topic: a stream, to which others "
        "may write as well, or a table of its own. It cannot write tables that statements change, windowed ones, or those with header columns.",
        'Topology("TOTALS").add_source("orders", "ODERS")',
        'Topology("TOTALS").add_source("orders", "ORDERS")',
    ),
    "FQ2072": CodePage(
        "A stream in Python does not fit what it reads",
        "A stream of a StreamsBuilder is a query over streams and tables, and is checked as one: columns exist, types fit, and groups and joins without "
        "columns of their own are by the key, which is one column. Columns of a result have different names, and the key is changed by "
        "`select_key` and `map` alone.",
        'orders.map_values(id=col("customer"))  # the key is ID',
        'orders.select_key("customer")',
    ),
    "FQ2080": CodePage(
        "A value does not fit its column",
        "A value of VALUES or SET is converted to the type of its column as it is written. In standard SQL numbers are rounded, and a number out "
        "of range, or a string that the type cannot read, is an error of the statement, which then changes nothing. The title names the column, and "
        "the row where there are several.",
        "INSERT INTO clicks (id, amount) VALUES (1, 2.7), (2, 3e9);",
        "INSERT INTO clicks (id, amount) VALUES (1, 2.7), (2, 300);",
    ),
    "FQ2085": CodePage(
        "An alias of the SELECT list stands where columns do",
        "WHERE, HAVING, the conditions of joins and the other items of the SELECT list are computed before the names that it gives. ORDER BY and GROUP BY may "
        "name an alias, alone. Write the expression again, put a condition on an aggregate behind HAVING, or filter a query around this one.",
        "SELECT id, price * pieces AS total FROM orders WHERE total > 100;",
        "SELECT id, price * pieces AS total FROM orders WHERE price * pieces > 100;",
    ),
    "FQ2086": CodePage(
        "A pattern stands without quotes",
        "The pattern of LIKE, ILIKE and SIMILAR TO is a text, in single quotes. Without them it is a name, and % the remainder of a division.",
        "SELECT id FROM orders WHERE customer LIKE ann%;",
        "SELECT id FROM orders WHERE customer LIKE 'ann%';",
    ),
    "FQ2087": CodePage(
        "A column is named in a query without FROM",
        "A query without FROM has one row and no columns of its own.",
        "SELECT id WHERE id > 3;",
        "SELECT id FROM orders WHERE id > 3;",
    ),
    "FQ2088": CodePage(
        "A part of a column is written as a column",
        "In front of the dot stands a relation. Parts of JSONB are taken with -> as JSONB and with ->> as texts, fields of a STRUCT with -> or (column).field.",
        "SELECT details.color FROM orders;        -- details JSONB",
        "SELECT details->>'color' AS color FROM orders;",
    ),
    "FQ2090": CodePage(
        "Valid, but not supported yet",
        "The construct is part of the language and FlowQL does not support it yet. This is not a mistake of yours.",
    ),
    "FQ2120": CodePage(
        "A query loses windows where its input pauses",
        "EMIT FINAL gives a window with the record whose time closes it: stream time, the largest time seen in the partition, has reached its "
        "end and the grace period. Nothing closes a window but a later record, and a window is kept for its size and grace, unless "
        "RETENTION says longer. So when stream time jumps further than that at once - TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) and a "
        "record every three minutes - the record that closes a window finds it forgotten, and no row is given. ksqlDB has the same rule. "
        "Such windows are counted with the late rows in `flowql status`.",
        "WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY k EMIT FINAL",
        "WINDOW TUMBLING (SIZE 1 MINUTE, RETENTION 7 DAYS, GRACE PERIOD 0 SECONDS) GROUP BY k EMIT FINAL",
    ),
    "FQ2121": CodePage(
        "A join looks rows of a table up as of the time of the event",
        "An event is joined with the rows of the table that existed at its time, by the times of records. Reference data whose records have the time "
        "at which they were written is not found by earlier events. `flowql topic import` gives rows of a table without a time "
        "column the time 0, so that all events find them; or a column of the table is its time.",
        "CREATE TABLE users (id INT PRIMARY KEY, city STRING) WITH (KAFKA_TOPIC = 'users', VALUE_FORMAT = 'JSON');",
        "CREATE TABLE users (id INT PRIMARY KEY, city STRING, since BIGINT)\n  WITH (KAFKA_TOPIC = 'users', VALUE_FORMAT = 'JSON', TIMESTAMP = 'since');",
    ),
    "FQ2091": CodePage(
        "A view over a stream keeps all its windows",
        "Over a stream without a watermark no record is late: each window of TUMBLE, HOP, CUMULATE and SESSION may still get a record, and is kept "
        "as a group of the view. A watermark says when a window is over; its state is dropped then, and its row stays in the view.",
        "CREATE STREAM clicks (page TEXT, ts TIMESTAMP) WITH (kafka_topic = 'clicks', value_format = 'json');\n"
        "CREATE VIEW v AS SELECT window_start, COUNT(*) AS n FROM TUMBLE(clicks, ts, INTERVAL '1' MINUTE) GROUP BY window_start;",
        "CREATE STREAM clicks (page TEXT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND)\n"
        "  WITH (kafka_topic = 'clicks', value_format = 'json');\n"
        "CREATE VIEW v AS SELECT window_start, COUNT(*) AS n FROM TUMBLE(clicks, ts, INTERVAL '1' MINUTE) GROUP BY window_start;",
    ),
    "FQ2103": CodePage(
        "A join of two streams has no time bound",
        "Both sides are unbounded, so every row would have to be kept forever. In a view of standard SQL declare WATERMARK FOR the times of both "
        "streams, and compare these times in ON.",
        "FROM a JOIN b ON a.id = b.id",
        "FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id",
    ),
}
CODES |= PROJECT_CODES | QUERY_CODES | ENGINE_CODES | SPARK_CODES | APPLICATION_CODES
