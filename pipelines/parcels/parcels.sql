-- What SQL makes of the streams that parcels.py writes: the depots where parcels wait for long.
CREATE TABLE SLOW_DEPOTS AS
  SELECT DEPOT, COUNT(*) AS PARCELS, MAX(HOURS) AS LONGEST
  FROM WAITS
  WHERE HOURS >= 24
  GROUP BY DEPOT;
