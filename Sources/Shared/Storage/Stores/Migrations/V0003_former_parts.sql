-- The numbers of parts that the installation had before it grew.
ALTER TABLE carillon.layout ADD COLUMN former int4[] NOT NULL DEFAULT '{}';
