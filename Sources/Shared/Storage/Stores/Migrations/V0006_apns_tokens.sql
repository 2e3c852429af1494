-- Tokens of APNs are hexadecimal, and compared without case. Of devices with the same token, the
-- one used last stays.
DELETE FROM carillon.devices d USING (
    SELECT id, row_number() OVER (PARTITION BY app, lower(token) ORDER BY last_used_at DESC, id DESC) AS place
    FROM carillon.devices WHERE provider = 'apns'
) k
WHERE d.id = k.id AND k.place > 1;
UPDATE carillon.devices SET token = lower(token) WHERE provider = 'apns' AND token <> lower(token);
