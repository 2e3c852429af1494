-- The users whom a broadcast leaves out, a JSON array; null if there is none. An index contains it,
-- so it refuses no row.
CREATE FUNCTION carillon.excluded_users(fields jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT (f ->> 1)::jsonb FROM jsonb_array_elements(fields) f WHERE f ->> 0 = 'except' LIMIT 1);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
-- Erasures find the broadcasts that leave a user out.
CREATE INDEX broadcasts_excluded ON carillon.broadcasts USING gin (carillon.excluded_users(fields))
    WHERE fields @> '[["except"]]';
-- Retention finds ended broadcasts by age.
CREATE INDEX broadcasts_ended ON carillon.broadcasts (created_at) WHERE state IN ('done', 'cancelled', 'failed');
