select p0.n + p1.n * 2 + p2.n * 4 + 1 as generated_number
from (select 0 as n union all select 1) as p0
cross join (select 0 as n union all select 1) as p1
cross join (select 0 as n union all select 1) as p2
