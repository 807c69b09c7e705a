-- The warehouse, all of it:  ksql --file main.sql
SET 'auto.offset.reset' = 'earliest';
DEFINE day = 'inv';
RUN SCRIPT 'parts/sources.sql';
RUN SCRIPT 'parts/stock.sql';
RUN SCRIPT 'parts/orders.sql';
