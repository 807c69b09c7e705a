-- The results, recomputed by DuckDB from the records of the topics. There is one partition: rows come in the order of offsets.
CREATE TABLE clicks AS
  SELECT "offset" AS seq, key AS visitor, value->>'URL' AS url, value->'DEVICE'->>'KIND' AS device,
         CAST(value->'DEVICE'->'LANGS' AS VARCHAR[]) AS langs, CAST(value->>'TOOK_MS' AS INT) AS took_ms,
         epoch_ms(CAST(value->>'CLICKED' AS TIMESTAMPTZ)) AS ts
  FROM topic('web.clicks');
CREATE TABLE hits AS
  SELECT *, lower(regexp_extract(url, 'example([^?]*)', 1)) AS path,
         replace(nullif(regexp_extract(url, 'utm=([^&]*)', 1), ''), '%20', ' ') AS campaign
  FROM clicks WHERE url IS NOT NULL;
CREATE VIEW want_HITS AS
  SELECT visitor AS VISITOR, path AS PATH, campaign AS CAMPAIGN, device AS DEVICE,
         list_transform(langs, lambda l: lower(l[1:2])) AS LANGS, took_ms AS TOOK_MS FROM hits;

-- Clicks that are hours late come from visitors who do nothing else, and open no visit.
CREATE VIEW want_VISITS AS
  WITH timed AS (SELECT *, max(ts) OVER (ORDER BY seq) AS reached FROM hits),
  kept AS (SELECT * FROM timed WHERE visitor IS NOT NULL AND ts + 900000 >= reached),
  begun AS (SELECT *, ts - lag(ts) OVER (PARTITION BY visitor ORDER BY ts) > 600000 AS new FROM kept),
  numbered AS (SELECT *, count(*) FILTER (new) OVER (PARTITION BY visitor ORDER BY ts) AS visit FROM begun)
  SELECT visitor AS VISITOR, min(ts) AS WINDOWSTART, max(ts) AS WINDOWEND, count(*) AS HITS
  FROM numbered GROUP BY visitor, visit;

CREATE TABLE pages AS
  SELECT key AS path, nullif(value->>'TITLE', '') AS title, nullif(value->>'SECTION', '') AS section, value IS NULL AS gone
  FROM topic('web.pages') QUALIFY row_number() OVER (PARTITION BY key ORDER BY "offset" DESC) = 1;
CREATE TABLE seen AS
  SELECT h.*, p.section, coalesce(p.title, '?') AS title FROM hits h LEFT JOIN pages p ON p.path = h.path AND NOT p.gone;
CREATE VIEW want_SEEN AS SELECT path AS PATH, visitor AS VISITOR, section AS SECTION, title AS TITLE FROM seen;

CREATE VIEW want_SECTION_VIEWS AS
  WITH timed AS (SELECT *, max(ts) OVER (ORDER BY seq) AS reached FROM seen WHERE section IS NOT NULL),
  opened AS (SELECT *, (ts // 600000 - back) * 600000 AS w FROM timed, range(3) r(back))
  SELECT section AS SECTION, w AS WINDOWSTART, count(*) AS VIEWS, count(DISTINCT visitor) AS VISITORS
  FROM opened WHERE w + 2100000 > reached GROUP BY section, w;

CREATE VIEW want_PAGES_PER_SECTION AS SELECT section AS SECTION, count(*) AS PAGES FROM pages WHERE NOT gone AND section IS NOT NULL GROUP BY section;

CREATE VIEW want_LANGUAGES AS
  SELECT LANG, count(*) AS HITS FROM (SELECT unnest(LANGS) AS LANG FROM want_HITS) WHERE LANG IS NOT NULL GROUP BY LANG;

CREATE VIEW want_CAMPAIGNS AS
  SELECT campaign AS CAMPAIGN, count(*) AS HITS, list_sort(list_distinct(list(took_ms)), 'DESC', 'NULLS LAST')[1:3] AS SLOWEST,
         avg(took_ms) AS TOOK
  FROM hits WHERE campaign IS NOT NULL GROUP BY campaign HAVING count(*) > 2;

CREATE VIEW want_LED_TO AS
  WITH p AS (SELECT key AS visitor, "timestamp" AS ts, CAST(value->>'TOTAL' AS DOUBLE) AS total, value->'ITEMS' AS items FROM topic('web.purchases'))
  SELECT p.visitor AS VISITOR, regexp_extract(c.url, 'example([^?]*)', 1) AS PATH, p.total AS TOTAL,
         list_sum(list_transform(json_keys(items), lambda k: CAST(json_extract(items, k) AS INT))) AS ITEMS
  FROM clicks c JOIN p ON p.visitor = c.visitor AND p.ts BETWEEN c.ts AND c.ts + 1800000
  WHERE c.url IS NOT NULL;
