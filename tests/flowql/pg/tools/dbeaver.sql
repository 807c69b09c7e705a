-- The catalogues that DBeaver's navigator reads for PostgreSQL, in statements of our own: databases, schemas, types, tables, columns with defaults and
-- dependencies, constraints, indexes, procedures, roles and settings, each with its description.
-- Origin: dbeaver/dbeaver, plugins/org.jkiss.dbeaver.ext.postgresql/src/org/jkiss/dbeaver/ext/postgresql/model: PostgreSchema.java and PostgreDatabase.java at
-- 001f621c (caches of tables, columns, constraints, indexes, procedures, types).

-- name: databases
SELECT d.oid > 0, d.datname, pg_catalog.shobj_description(d.oid, 'pg_database') AS about FROM pg_catalog.pg_database AS d
WHERE d.datallowconn AND NOT d.datistemplate;
-- = t|x|NULL

-- name: schemas
SELECT n.nspname, coalesce(d.description, '') IN ('', 'standard public schema') AS usual FROM pg_catalog.pg_namespace AS n
LEFT OUTER JOIN pg_catalog.pg_description AS d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
WHERE n.nspname = 'public';
-- = public|t

-- name: types
SELECT t.typname, t.typtype, c.relkind, b.typname AS element FROM pg_catalog.pg_type AS t LEFT OUTER JOIN pg_catalog.pg_type AS b ON t.typelem = b.oid
LEFT OUTER JOIN pg_catalog.pg_class AS c ON c.oid = t.typrelid WHERE t.typname IN ('int8', '_text') AND (c.relkind IS NULL OR c.relkind = 'c') ORDER BY 1;
-- = _text|b|NULL|text
-- = int8|b|NULL|NULL

-- name: tables
SELECT c.relname, c.relkind, c.relispartition, c.reltuples >= -1 AS counted, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound
FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind NOT IN ('i', 'I', 'c') AND c.relname IN ('orders', 'spent') ORDER BY 1;
-- = orders|r|f|t|NULL
-- = spent|m|f|t|NULL

-- name: columns
SELECT c.relname, a.attname, a.attnum, pg_catalog.pg_get_expr(f.adbin, f.adrelid, true) AS made, d.description, p.objid AS belongs
FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON a.attrelid = c.oid
LEFT OUTER JOIN pg_catalog.pg_attrdef AS f ON a.attrelid = f.adrelid AND a.attnum = f.adnum
LEFT OUTER JOIN pg_catalog.pg_description AS d ON c.oid = d.objoid AND a.attnum = d.objsubid
LEFT OUTER JOIN pg_depend AS p ON p.refobjid = a.attrelid AND p.deptype = 'i' AND p.refobjsubid = a.attnum AND p.classid = p.refclassid
WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.relname = 'orders' AND a.attnum > 0 ORDER BY a.attnum;
-- = orders|id|1|NULL|NULL|NULL
-- = orders|customer|2|NULL|NULL|NULL
-- = orders|amount|3|NULL|NULL|NULL

-- name: constraints
SELECT c.conname, c.contype, c.conkey, t.relname, pg_catalog.pg_get_constraintdef(c.oid) AS says, d.description
FROM pg_catalog.pg_constraint AS c JOIN pg_catalog.pg_class AS t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class AS r ON r.oid = c.confrelid LEFT OUTER JOIN pg_catalog.pg_description AS d ON d.objoid = c.oid
WHERE t.relname = 'orders' AND c.contype = 'p';
-- = orders_pkey|p|{1}|orders|PRIMARY KEY (id)|NULL

-- name: indexes
SELECT c.relname, t.relname, i.indisunique, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS made, d.description
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid JOIN pg_catalog.pg_class AS t ON t.oid = i.indrelid
LEFT OUTER JOIN pg_catalog.pg_description AS d ON i.indexrelid = d.objoid WHERE t.relname = 'orders' ORDER BY c.relname;
-- = orders_pkey|orders|t|NULL|NULL

-- name: procedures
SELECT p.oid, p.proname, d.description FROM pg_catalog.pg_proc AS p LEFT OUTER JOIN pg_catalog.pg_description AS d ON d.objoid = p.oid
WHERE p.pronamespace = 'public'::regnamespace ORDER BY p.proname;

-- name: definition of a view
SELECT length(pg_catalog.pg_get_viewdef('spent'::regclass, true)) > 0 AS told FROM pg_class WHERE relname = 'spent';
-- = t

-- name: roles
SELECT r.rolname, r.rolcanlogin FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user;

-- name: settings
SELECT s.name, s.setting FROM pg_catalog.pg_settings AS s WHERE s.name = 'server_version_num';
-- = server_version_num|150000
