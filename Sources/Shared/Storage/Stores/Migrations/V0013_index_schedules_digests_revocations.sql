-- Erasures read the schedules for several users only, and a user's digests.
CREATE INDEX schedules_shared ON carillon.schedules (id) WHERE user_id IS NULL;
CREATE INDEX digests_user ON carillon.digests (user_id);

-- Revocations are forgotten by age, so that the others need not be read each time.
CREATE INDEX token_revocations_revoked_before ON carillon.token_revocations (revoked_before);
