-- From when on a user's tokens are good: those made before are refused.

CREATE TABLE carillon.token_revocations (
    user_id text PRIMARY KEY,
    revoked_before timestamptz NOT NULL,
    -- Numbers the changes in the order of their commits, so that a reader who has seen N has seen all before it.
    version bigint NOT NULL
);
CREATE UNIQUE INDEX token_revocations_version ON carillon.token_revocations (version);

-- Its row is locked by whoever revokes, until the commit.
CREATE TABLE carillon.token_revocation_version (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version bigint NOT NULL
);
INSERT INTO carillon.token_revocation_version (version) VALUES (0);
