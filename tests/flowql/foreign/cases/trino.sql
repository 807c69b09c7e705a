CREATE TABLE memory.shop.t (id bigint, s varchar, m map(varchar, integer), arr array(varchar), n integer, x double, d date, ts timestamp(3), j varchar, price decimal(10,2));
SELECT date_diff('day', ts, timestamp '2024-01-01 00:00:00'), date_trunc('hour', ts), element_at(m, 'k'), cardinality(arr), approx_distinct(id), count_if(n > 1) FROM t GROUP BY 1,2,3,4;
SELECT try_cast(s AS integer), try(n / id), json_extract_scalar(j, '$.a'), date_format(ts, '%Y-%m-%d'), arr[1], from_unixtime(id), strpos(s, 'x'), n / 2, price / 2 FROM t;
SELECT t.id, u.x FROM t CROSS JOIN UNNEST(arr) AS u(x) FETCH FIRST 3 ROWS ONLY;
SELECT s, max_by(id, x), array_agg(id ORDER BY x), listagg(s, ',') WITHIN GROUP (ORDER BY id) FROM t GROUP BY s;
SELECT d + interval '1' day, date_add('month', 1, d), year(ts), day_of_week(d), coalesce(s, ''), s || '-' || cast(n AS varchar), lower(trim(s)), if(n > 1, 'a', 'b'), greatest(n, id) FROM t;
CREATE VIEW v AS SELECT s, sum(n) AS total FROM t GROUP BY s;
SELECT transform(arr, x -> upper(x)), regexp_like(s, 'a'), split(s, ','), at_timezone(ts, 'UTC') FROM t
