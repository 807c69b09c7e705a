select
    "c"."customer_id" as "Customer ID",
    "c"."email" as "E-Mail",
    o."lifetime_value" as "Lifetime Value"
from "stg_customers" as "c"
join "int_customer_orders" as o on o."customer_id" = "c"."customer_id"
where "c"."is_opted_in"
