SET 'auto.offset.reset' = 'earliest';

-- Visits: clicks of one visitor without a pause of ten minutes. Nobody knows who clicks without a cookie.
CREATE TABLE visits AS
  SELECT visitor,
         COUNT(*) AS hits,
         EARLIEST_BY_OFFSET(path) AS landing,
         LATEST_BY_OFFSET(path) AS leaving,
         COLLECT_LIST(path) AS paths
  FROM hits
  WINDOW SESSION (10 MINUTES, GRACE PERIOD 5 MINUTES)
  GROUP BY visitor
  EMIT CHANGES;

CREATE STREAM hits_by_path AS SELECT path, visitor FROM hits WHERE path IS NOT NULL PARTITION BY path EMIT CHANGES;
CREATE STREAM seen AS
  SELECT h.path AS path, h.visitor AS visitor, p.section AS section, IFNULL(p.title, '?') AS title
  FROM hits_by_path h
  LEFT JOIN pages p ON h.path = p.path
  EMIT CHANGES;

CREATE TABLE section_views AS
  SELECT section, COUNT(*) AS views, COUNT_DISTINCT(visitor) AS visitors
  FROM seen
  WINDOW HOPPING (SIZE 30 MINUTES, ADVANCE BY 10 MINUTES, GRACE PERIOD 5 MINUTES)
  GROUP BY section
  EMIT CHANGES;

CREATE TABLE pages_per_section AS SELECT section, COUNT(*) AS pages FROM pages GROUP BY section;
