SET 'auto.offset.reset' = 'earliest';

-- The servers log how long a page took.
ALTER STREAM clicks ADD COLUMN took_ms INT;

CREATE OR REPLACE STREAM hits AS
  SELECT visitor,
         LCASE(URL_EXTRACT_PATH(url)) AS path,
         URL_DECODE_PARAM(URL_EXTRACT_PARAMETER(url, 'utm')) AS campaign,
         device->kind AS device,
         TRANSFORM(device->langs, l => LCASE(SUBSTRING(l, 1, 2))) AS langs,
         took_ms
  FROM clicks
  WHERE url IS NOT NULL
  EMIT CHANGES;

-- Robots are counted elsewhere now.
TERMINATE CTAS_ROBOT_COUNT_5;
DROP TABLE robot_count;
DROP STREAM IF EXISTS robots;

CREATE STREAM spoken AS SELECT visitor, EXPLODE(langs) AS lang FROM hits EMIT CHANGES;
CREATE TABLE languages AS SELECT lang, COUNT(*) AS hits FROM spoken GROUP BY lang EMIT CHANGES;

CREATE TABLE campaigns AS
  SELECT campaign,
         COUNT(*) AS hits,
         TOPKDISTINCT(took_ms, 3) AS slowest,
         HISTOGRAM(device) AS devices,
         AVG(took_ms) AS took
  FROM hits
  GROUP BY campaign
  HAVING COUNT(*) > 2
  EMIT CHANGES;

-- What was looked at in the half hour before something was bought.
CREATE STREAM led_to AS
  SELECT c.visitor AS visitor, URL_EXTRACT_PATH(c.url) AS path, p.total AS total,
         REDUCE(p.items, 0, (n, sku, count) => n + count) AS items
  FROM clicks c
  JOIN purchases p WITHIN (0 SECONDS, 30 MINUTES) GRACE PERIOD 5 MINUTES ON c.visitor = p.visitor
  WHERE c.url IS NOT NULL
  EMIT CHANGES;
