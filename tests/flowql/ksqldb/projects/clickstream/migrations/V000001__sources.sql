-- What the web servers log, what the pages are, and what is bought.
DEFINE site = 'web';

CREATE STREAM clicks (
  visitor STRING KEY,
  url STRING,
  agent STRING,
  device STRUCT<kind STRING, langs ARRAY<STRING>>,
  clicked STRING
) WITH (
  kafka_topic='${site}.clicks', partitions=1, value_format='JSON',
  timestamp='clicked', timestamp_format='yyyy-MM-dd''T''HH:mm:ss.SSSX'
);

CREATE TABLE pages (path STRING PRIMARY KEY, title STRING, section STRING)
  WITH (kafka_topic='${site}.pages', partitions=1, value_format='DELIMITED', value_delimiter='|');

CREATE STREAM purchases (visitor STRING KEY, total DOUBLE, items MAP<STRING, INT>)
  WITH (kafka_topic='${site}.purchases', partitions=1, value_format='JSON');
