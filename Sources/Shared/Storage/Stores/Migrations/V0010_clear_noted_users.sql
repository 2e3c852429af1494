-- Broadcasts. Earlier releases noted users as places. V0011 indexes what they may still note.
UPDATE carillon.broadcast_pages SET after_user = '', until_user = '' WHERE after_user <> '' OR until_user <> '';
UPDATE carillon.broadcasts SET withdrawn_to = '' WHERE withdrawn_to <> '' AND state <> 'cancelling';
