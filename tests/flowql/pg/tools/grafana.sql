-- The catalogues that the query editor of Grafana's PostgreSQL source reads, in statements of our own: the version, an extension, schemas, tables in and out of
-- the search path, columns of a table by its name as it is written.
-- Origin: grafana/grafana, public/app/plugins/datasource/grafana-postgresql-datasource/postgresMetaQuery.ts at 12f912ab.

-- name: version
SELECT current_setting('server_version_num')::int / 100 AS v;
-- = 1500

-- name: extension
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb';

-- name: schemas
SELECT schema_name AS s FROM information_schema.schemata WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast') ORDER BY schema_name;
-- = public

-- name: tables of a schema
SELECT quote_ident(table_name) AS t FROM information_schema.tables WHERE quote_ident(table_schema) = 'public' AND table_name IN ('orders', 'spent') ORDER BY 1;
-- = orders
-- = spent

-- name: tables in the search path
SELECT CASE WHEN quote_ident(table_schema) IN (
    SELECT CASE WHEN trim(parts[n]) = '"$user"' THEN user ELSE trim(parts[n]) END
    FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS n,
      string_to_array(current_setting('search_path'), ',') parts)
  THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS t
FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') AND table_name IN ('orders', 'spent') ORDER BY 1;
-- = orders
-- = spent

-- name: columns
SELECT quote_ident(column_name) AS c, data_type AS t FROM information_schema.columns
WHERE CASE WHEN array_length(parse_ident('public.orders'), 1) = 2
  THEN quote_ident(table_schema) = (parse_ident('public.orders'))[1] AND quote_ident(table_name) = (parse_ident('public.orders'))[2]
  ELSE quote_ident(table_name) = 'public.orders' END ORDER BY ordinal_position;
-- = id|bigint
-- = customer|text
-- = amount|numeric
