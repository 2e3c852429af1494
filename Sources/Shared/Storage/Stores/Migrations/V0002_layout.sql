-- Over how many parts the keys of Redis are spread; one row.
CREATE TABLE carillon.layout (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    parts int4 NOT NULL CHECK (parts BETWEEN 1 AND 256)
);

-- An installation that is older has the names of one Redis.
INSERT INTO carillon.layout (parts) SELECT 1 WHERE EXISTS (SELECT FROM carillon.notifications);
