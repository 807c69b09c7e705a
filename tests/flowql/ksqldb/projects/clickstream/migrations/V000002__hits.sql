SET 'auto.offset.reset' = 'earliest';

CREATE STREAM hits AS
  SELECT visitor, LCASE(URL_EXTRACT_PATH(url)) AS path
  FROM clicks
  WHERE url IS NOT NULL
  EMIT CHANGES;

CREATE STREAM robots AS SELECT visitor, agent FROM clicks WHERE LCASE(agent) LIKE '%bot%';
CREATE TABLE robot_count AS SELECT agent, COUNT(*) AS n FROM robots GROUP BY agent;
