-- Carillon · schema.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- The app's current tables, with a few rows.

CREATE TABLE auth_user (id serial PRIMARY KEY, email text NOT NULL, timezone text);

CREATE TABLE push_notifications_apnsdevice (
    id serial PRIMARY KEY,
    user_id integer NOT NULL REFERENCES auth_user (id),
    registration_id text NOT NULL UNIQUE,
    device_id text,
    name text,
    active boolean NOT NULL DEFAULT true,
    date_created timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE push_notifications_gcmdevice (
    id serial PRIMARY KEY,
    user_id integer NOT NULL REFERENCES auth_user (id),
    registration_id text NOT NULL UNIQUE,
    device_id bigint,
    name text,
    active boolean NOT NULL DEFAULT true,
    date_created timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE notifications_notificationpreference (
    user_id integer PRIMARY KEY REFERENCES auth_user (id),
    task_due_soon boolean NOT NULL DEFAULT true,
    task_overdue boolean NOT NULL DEFAULT true,
    task_completed boolean NOT NULL DEFAULT true,
    task_assigned boolean NOT NULL DEFAULT true,
    daily_digest boolean NOT NULL DEFAULT true
);

INSERT INTO auth_user VALUES (7001, 'ada@home.example', 'Europe/Berlin'), (7002, 'ben@home.example', 'America/New_York');
INSERT INTO push_notifications_apnsdevice (user_id, registration_id, device_id, name) VALUES
    (7001, 'ada0ada0ada0ada0ada0ada0ada0ada0ada0ada0ada0ada0ada0ada0ada0ada0', 'A-1', 'Ada''s iPhone');
INSERT INTO push_notifications_gcmdevice (id, user_id, registration_id, device_id, name, active) VALUES
    (1, 7002, 'household-phone-of-ben', 8123456789, '', true),
    (2, 7002, 'household-old-phone', 8123456780, 'Old', false);
INSERT INTO push_notifications_gcmdevice (id, user_id, registration_id, device_id, name, date_created) VALUES
    (3, 7002, 'household-old-token-of-ben', 8123456789, 'Ben''s Pixel', now() - interval '1 day');
INSERT INTO notifications_notificationpreference (user_id, task_completed) VALUES (7001, false);
