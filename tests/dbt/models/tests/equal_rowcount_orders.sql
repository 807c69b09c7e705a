with a as (select 1 as id_dbtutils_test_equal_rowcount, count(*) as count_a from stg_orders group by 1),
b as (select 1 as id_dbtutils_test_equal_rowcount, count(*) as count_b from fct_orders group by 1),
final as (
    select
        a.id_dbtutils_test_equal_rowcount as id_a,
        b.id_dbtutils_test_equal_rowcount as id_b,
        count_a,
        count_b,
        abs(count_a - count_b) as diff_count
    from a
    full join b on a.id_dbtutils_test_equal_rowcount = b.id_dbtutils_test_equal_rowcount
)
select * from final where diff_count > 0
