select transition, count(*) as times
from int_event_sequences
group by transition
