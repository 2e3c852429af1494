-- Carillon · schema.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- The app's current tables, with a few rows.

CREATE TABLE users (id UUID PRIMARY KEY, email TEXT);

CREATE TABLE push_devices (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id UUID NOT NULL REFERENCES users (id),
    fcm_token VARCHAR(255) NOT NULL UNIQUE,
    platform VARCHAR(50) NOT NULL,
    device_id VARCHAR(255),
    user_agent TEXT,
    created_at TIMESTAMP NOT NULL DEFAULT NOW(),
    last_used_at TIMESTAMP NOT NULL DEFAULT NOW()
);

CREATE TABLE notification_preferences (
    user_id UUID NOT NULL REFERENCES users (id),
    notification_type VARCHAR NOT NULL,
    in_app_enabled BOOLEAN NOT NULL DEFAULT TRUE,
    push_enabled BOOLEAN NOT NULL DEFAULT TRUE,
    quiet_hours_start TIME,
    quiet_hours_end TIME,
    PRIMARY KEY (user_id, notification_type)
);

CREATE TABLE notifications (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id UUID NOT NULL REFERENCES users (id),
    org_id UUID,
    type VARCHAR NOT NULL,
    severity VARCHAR NOT NULL,
    delivery VARCHAR NOT NULL,
    title VARCHAR(255) NOT NULL,
    body TEXT,
    data JSONB,
    created_at TIMESTAMP NOT NULL DEFAULT NOW(),
    read_at TIMESTAMP,
    sent_via VARCHAR
);

INSERT INTO users VALUES
    ('11111111-0000-4000-8000-00000000000a', 'ada@example.com'),
    ('11111111-0000-4000-8000-00000000000b', 'ben@example.com');
INSERT INTO push_devices (user_id, fcm_token, platform, device_id, last_used_at) VALUES
    ('11111111-0000-4000-8000-00000000000a', 'accounting-phone-of-ada', 'ios', 'A-1', NOW()),
    ('11111111-0000-4000-8000-00000000000b', 'accounting-browser-of-ben', 'web', 'B-1', NOW()),
    ('11111111-0000-4000-8000-00000000000b', 'accounting-old-token-of-ben', 'web', 'B-1', NOW() - interval '1 day');
INSERT INTO notification_preferences VALUES
    ('11111111-0000-4000-8000-00000000000a', 'system_maintenance', TRUE, FALSE, NULL, NULL),
    ('11111111-0000-4000-8000-00000000000b', 'invoice_overdue', TRUE, FALSE, NULL, NULL),
    ('11111111-0000-4000-8000-00000000000b', 'invoice_created', TRUE, TRUE, '22:00', '07:00');
INSERT INTO notifications (id, user_id, type, severity, delivery, title, data, read_at) VALUES
    ('11111111-0000-4000-8000-0000000000f1', '11111111-0000-4000-8000-00000000000a', 'invoice_created', 'info', 'in_app',
     'From before', '{"invoice_id": "i1", "paid_at": null}', NULL),
    ('11111111-0000-4000-8000-0000000000f2', '11111111-0000-4000-8000-00000000000a', 'invoice_created', 'info', 'in_app',
     'Read long ago', NULL, NOW());
INSERT INTO notifications (id, user_id, type, severity, delivery, title, created_at) VALUES
    ('11111111-0000-4000-8000-0000000000f3', '11111111-0000-4000-8000-00000000000a', 'invoice_created', 'info', 'in_app',
     'Unread for long', NOW() - interval '40 days');
