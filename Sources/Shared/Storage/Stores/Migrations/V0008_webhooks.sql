-- Where apps without a Redis client are told what became of their notifications.

CREATE TABLE carillon.webhooks (
    id uuid PRIMARY KEY,
    -- Whose events; null for those of every organisation.
    org_id text,
    url text NOT NULL,
    -- The kinds of events, a JSON array; null for all.
    events jsonb,
    -- The key of the signatures, so it cannot be kept as a hash.
    secret text NOT NULL,
    -- active, failing or off
    status text NOT NULL DEFAULT 'active',
    status_reason text,
    -- Since when every request has failed, and how many.
    failing_since timestamptz,
    failures integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX webhooks_url ON carillon.webhooks (coalesce(org_id, ''), (org_id IS NULL), url);
