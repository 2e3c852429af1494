-- Operators find the broadcasts that wait for them among all that are kept, most of which are done.
CREATE INDEX broadcasts_state ON carillon.broadcasts (state, id) WHERE state <> 'done';

-- Pages of broadcasts that are due wait for room in their lane, among jobs that do not.
CREATE INDEX schedules_pages ON carillon.schedules (lane, wake_at) WHERE part LIKE '% %';
