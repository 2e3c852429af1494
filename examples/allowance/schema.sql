-- Carillon · schema.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- The app's tables as Entity Framework creates them in PostgreSQL, with a few rows.

CREATE TABLE "AspNetUsers" ("Id" uuid PRIMARY KEY, "Email" text, "FamilyId" uuid);

CREATE TABLE "DeviceTokens" (
    "Id" uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    "UserId" uuid NOT NULL REFERENCES "AspNetUsers" ("Id"),
    "Token" text NOT NULL UNIQUE,
    "Platform" integer NOT NULL,
    "DeviceName" text,
    "AppVersion" text,
    "IsActive" boolean NOT NULL DEFAULT true,
    "CreatedAt" timestamptz NOT NULL DEFAULT now(),
    "LastUsedAt" timestamptz,
    "DeactivatedAt" timestamptz
);

CREATE TABLE "NotificationPreferences" (
    "Id" uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    "UserId" uuid NOT NULL REFERENCES "AspNetUsers" ("Id"),
    "NotificationType" integer NOT NULL,
    "InAppEnabled" boolean NOT NULL DEFAULT true,
    "PushEnabled" boolean NOT NULL DEFAULT true,
    "EmailEnabled" boolean NOT NULL DEFAULT false,
    "QuietHoursEnabled" boolean NOT NULL DEFAULT false,
    "QuietHoursStart" time,
    "QuietHoursEnd" time,
    UNIQUE ("UserId", "NotificationType")
);

INSERT INTO "AspNetUsers" VALUES
    ('22222222-0000-4000-8000-00000000000a', 'mom@example.com', '22222222-0000-4000-8000-00000000000f'),
    ('22222222-0000-4000-8000-00000000000b', NULL, '22222222-0000-4000-8000-00000000000f');
INSERT INTO "DeviceTokens" ("UserId", "Token", "Platform", "DeviceName", "AppVersion", "IsActive", "LastUsedAt") VALUES
    ('22222222-0000-4000-8000-00000000000a', 'allowance-phone-of-mom', 1, 'Mom''s iPhone', '2.0', true, now()),
    ('22222222-0000-4000-8000-00000000000a', 'allowance-old-token-of-mom', 1, 'Mom''s iPhone', '1.9', true,
     now() - interval '1 day'),
    ('22222222-0000-4000-8000-00000000000a', 'allowance-old-phone', 1, 'Old', '1.0', true, now() - interval '91 days'),
    ('22222222-0000-4000-8000-00000000000b', 'allowance-phone-of-kid', 2, 'Pixel', '2.0', true, now());
INSERT INTO "NotificationPreferences"
    ("UserId", "NotificationType", "InAppEnabled", "PushEnabled", "EmailEnabled", "QuietHoursEnabled",
     "QuietHoursStart", "QuietHoursEnd") VALUES
    ('22222222-0000-4000-8000-00000000000a', 70, true, false, true, false, NULL, NULL),
    ('22222222-0000-4000-8000-00000000000b', 31, true, true, false, true, '03:00', '03:01');
