CREATE TABLE Orders (orderId STRING, `user` BIGINT, amount INT, price DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'b:9092', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'users', 'key.format' = 'json', 'value.format' = 'json');
CREATE VIEW per_minute AS SELECT window_start, window_end, SUM(amount) AS total FROM TABLE(TUMBLE(TABLE Orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
SELECT orderId, `user`, amount / 2, DATE_FORMAT(ts, 'yyyy-MM-dd'), TIMESTAMPDIFF(DAY, ts, ts), CAST(price AS INT), AVG(amount) OVER (PARTITION BY `user`) FROM Orders;
CREATE TABLE sink (orderId STRING, total BIGINT) WITH ('connector' = 'kafka', 'topic' = 'sink', 'format' = 'json');
INSERT INTO sink SELECT orderId, CAST(amount AS BIGINT) FROM Orders WHERE amount > 10;
SELECT o.orderId, u.name FROM Orders AS o LEFT JOIN users AS u ON o.`user` = u.id;
SELECT orderId, PROCTIME(), LAG(amount) OVER (PARTITION BY `user` ORDER BY ts) FROM Orders;
SELECT COUNT(*), CHAR_LENGTH(orderId), UPPER(orderId), CONCAT(orderId, '-'), IFNULL(amount, 0), EXTRACT(YEAR FROM ts) FROM Orders GROUP BY orderId, amount, ts;
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY price DESC) AS rn FROM Orders) WHERE rn <= 3
