select
    id as ticket_id,
    subject,
    regexp_replace(subject, '^(re:\s*)+', '', 'i') as clean_subject,
    subject ~ '\[URGENT\]' as is_flagged,
    substring(subject, 'order ([0-9]+)') as order_text,
    array_length(string_to_array(subject, ' '), 1) as word_count,
    coalesce(substring(subject from 1 for 6), '') as prefix,
    overlay(subject placing 'X' from 1 for 1) as masked
from raw_tickets
