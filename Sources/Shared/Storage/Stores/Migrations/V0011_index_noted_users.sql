-- Erasures find the pages in which dispatchers of earlier releases noted a user, and the chains
-- whose last page ended with the user.
CREATE INDEX broadcast_pages_after ON carillon.broadcast_pages (after_user) WHERE after_user <> '';
CREATE INDEX broadcast_pages_until ON carillon.broadcast_pages (until_user) WHERE until_user <> '';
CREATE INDEX broadcast_chains_reached ON carillon.broadcast_chains (reached) WHERE reached <> '';
