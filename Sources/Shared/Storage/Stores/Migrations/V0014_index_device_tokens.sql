-- A registration finds its token in every app. A hash index, because a token may be 2 kB long.
CREATE INDEX devices_token ON carillon.devices USING hash (token);
