with a as (select count(*) as n from int_customers_deduplicated), b as (select count(*) as n from stg_customers)
select a.n, b.n as allowed from a cross join b where a.n > b.n
