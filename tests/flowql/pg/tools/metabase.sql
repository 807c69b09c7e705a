-- The catalogues that Metabase's sync of a PostgreSQL database reads, in statements of our own: the time zone, names of enumerated types, the rights of the
-- user on tables, views and materialized views, and their columns with types and keys.
-- Origin: metabase/metabase, src/metabase/driver/postgres.clj at 370249b5 (db-default-timezone, enum-types, current-user-table-privileges); columns and keys
-- come from the driver for Java, which reads pg_attribute, pg_type, pg_attrdef, pg_index and pg_description.

-- name: time zone
SHOW timezone;
-- = UTC

-- name: enumerated types
SELECT ns.nspname, ty.typname FROM pg_type AS ty JOIN pg_namespace AS ns ON ty.typnamespace = ns.oid
WHERE EXISTS (SELECT 1 FROM pg_enum AS e WHERE e.enumtypid = ty.oid);

-- name: rights
WITH known AS (
  SELECT schemaname AS s, tablename AS n FROM pg_catalog.pg_tables
  UNION SELECT schemaname, viewname FROM pg_catalog.pg_views
  UNION SELECT schemaname, matviewname FROM pg_catalog.pg_matviews
), named AS (
  SELECT s, n, '"' || s || '"."' || n || '"' AS whole FROM known
  WHERE s !~ '^pg_' AND s <> 'information_schema' AND pg_catalog.has_schema_privilege(current_user, s, 'usage')
)
SELECT n, pg_catalog.has_table_privilege(current_user, whole, 'select') AS reads FROM named WHERE n IN ('orders', 'spent') ORDER BY n;
-- = orders|t
-- = spent|t

-- name: tables
SELECT c.relname, c.relkind, d.description FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_description AS d ON d.objoid = c.oid AND d.objsubid = 0
WHERE s.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'f', 'm') AND c.relname IN ('orders', 'spent') ORDER BY c.relname;
-- = orders|r|NULL
-- = spent|m|NULL

-- name: columns
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_catalog.pg_get_expr(f.adbin, f.adrelid) AS made
FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
WHERE s.nspname = 'public' AND c.relname = 'orders' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;
-- = id|bigint|t|NULL
-- = customer|text|f|NULL
-- = amount|numeric(10,2)|f|NULL

-- name: columns of materialized views
SELECT a.attname, CASE WHEN ts.nspname IN ('public', 'pg_catalog') THEN format('%s', t.typname) ELSE format('%I.%I', ts.nspname, t.typname) END AS kind,
  col_description(c.oid, a.attnum::int) AS about
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS s ON s.oid = c.relnamespace
JOIN pg_type AS t ON t.oid = a.atttypid JOIN pg_namespace AS ts ON ts.oid = t.typnamespace
WHERE c.relkind = 'm' AND a.attnum >= 1 AND NOT a.attisdropped AND s.nspname !~ '^information_schema|catalog_history|pg_' AND c.relname = 'spent'
ORDER BY a.attnum;
-- = customer|text|NULL
-- = orders|int8|NULL
-- = total|numeric|NULL

-- name: primary keys
SELECT tc.relname, a.attname FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS tc ON tc.oid = i.indrelid
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = tc.oid AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND tc.relname = 'orders';
-- = orders|id
