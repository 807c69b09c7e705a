-- What the topics hold. The files are made by data.py from the flights that left New York City in 2013.

-- One record per scheduled flight, at its scheduled departure. DEP_DELAY and ARR_DELAY in minutes, negative when early;
-- DEP_DELAY is null for a cancelled flight. Keyed by carrier: what is counted per carrier needs no repartition.
CREATE STREAM FLIGHTS (
  CARRIER STRING KEY,
  FLIGHT INT,
  TAILNUM STRING,
  ORIGIN STRING,
  DEST STRING,
  SCHED_DEP_TIME BIGINT,
  TIME_HOUR BIGINT,
  DEP_DELAY INT,
  ARR_DELAY INT,
  AIR_TIME INT,
  DISTANCE INT
) WITH (
  KAFKA_TOPIC = 'flights', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON',
  TIMESTAMP = 'SCHED_DEP_TIME'
);

-- Weather at an airport in an hour; the key is both, as 'EWR|1357034400000' (the start of the hour in ms).
CREATE TABLE WEATHER (
  STATION_HOUR STRING PRIMARY KEY,
  TIME_HOUR BIGINT,
  TEMP DOUBLE,
  WIND_SPEED DOUBLE,
  PRECIP DOUBLE,
  VISIB DOUBLE
) WITH (
  KAFKA_TOPIC = 'weather', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON',
  TIMESTAMP = 'TIME_HOUR'
);

CREATE TABLE PLANES (
  TAILNUM STRING PRIMARY KEY,
  BUILT INT,
  MANUFACTURER STRING,
  MODEL STRING,
  SEATS INT
) WITH (
  KAFKA_TOPIC = 'planes', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON'
);

CREATE TABLE AIRLINES (
  CARRIER STRING PRIMARY KEY,
  NAME STRING
) WITH (
  KAFKA_TOPIC = 'airlines', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON'
);
