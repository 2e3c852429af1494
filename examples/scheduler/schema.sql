-- Carillon · schema.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- The app's current tables, with a few rows. They are in a schema of Carillon's database, so that
-- a transaction can call carillon.enqueue. For a separate database, install the outbox with
-- `dispatcher outbox-sql`.

DROP SCHEMA IF EXISTS example_scheduler CASCADE;
CREATE SCHEMA example_scheduler;
SET search_path = example_scheduler;

CREATE TABLE user_push_tokens (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL,
    platform text NOT NULL CHECK (platform IN ('ios', 'android')),
    token text NOT NULL,
    device_id text,
    last_seen_at timestamptz DEFAULT now(),
    created_at timestamptz DEFAULT now(),
    updated_at timestamptz DEFAULT now()
);
CREATE UNIQUE INDEX idx_user_push_tokens_unique ON user_push_tokens (user_id, platform, token);

CREATE TABLE notification_settings (
    user_id uuid NOT NULL,
    category text NOT NULL,
    enabled boolean NOT NULL DEFAULT true,
    at_time time NOT NULL DEFAULT '09:00',
    timezone text NOT NULL DEFAULT 'UTC',
    quiet_start time,
    quiet_end time,
    title text NOT NULL,
    PRIMARY KEY (user_id, category)
);

INSERT INTO user_push_tokens (user_id, platform, token, device_id) VALUES
    ('33333333-0000-4000-8000-00000000000a', 'ios',
     'ada5ada5ada5ada5ada5ada5ada5ada5ada5ada5ada5ada5ada5ada5ada5ada5', 'A-1'),
    ('33333333-0000-4000-8000-00000000000b', 'android', 'scheduler-phone-of-ben', 'B-1');
INSERT INTO user_push_tokens (user_id, platform, token, device_id, last_seen_at) VALUES
    ('33333333-0000-4000-8000-00000000000b', 'android', 'scheduler-old-token-of-ben', 'B-1', now() - interval '1 day'),
    ('33333333-0000-4000-8000-00000000000c', 'android', 'scheduler-phone-of-cleo', 'C-1', now() - interval '1 year');
INSERT INTO notification_settings (user_id, category, enabled, timezone, quiet_start, quiet_end, title) VALUES
    ('33333333-0000-4000-8000-00000000000a', 'log', true, 'Pacific/Auckland', NULL, NULL, 'Log your day'),
    ('33333333-0000-4000-8000-00000000000a', 'water', false, 'Pacific/Auckland', NULL, NULL, 'Drink'),
    ('33333333-0000-4000-8000-00000000000b', 'log', true, 'Europe/Lisbon', '22:00', '07:00', 'Log your day');
