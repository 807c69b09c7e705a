select lower(word) as word, count(*) as times
from raw_tickets t
cross join lateral regexp_split_to_table(t.subject, '\s+') as word
where word <> ''
group by lower(word)
