-- A batch changes all rows of a page in one transaction, and makes them a little longer. So each
-- page needs room for a second version of each row, or the changed rows move to other pages and to
-- every index.
ALTER TABLE carillon.notifications SET (fillfactor = 45);
