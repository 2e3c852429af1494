-- Carillon · export.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Selects one line of JSON per user, for `gateway import`:
--
--     psql -XAtqf export.sql "$APP_DATABASE" | gateway import -
--
-- Translates type codes to the catalog's names, and subscribes families to their topic. The most
-- recently used device comes last: of two tokens with one name, the import keeps the later.

WITH types (code, name) AS (VALUES
    (1, 'BalanceAlert'), (2, 'LowBalanceWarning'), (3, 'TransactionCreated'), (10, 'AllowanceDeposit'),
    (11, 'AllowancePaused'), (12, 'AllowanceResumed'), (20, 'GoalProgress'), (21, 'GoalMilestone'),
    (22, 'GoalCompleted'), (23, 'ParentMatchAdded'), (30, 'TaskAssigned'), (31, 'TaskReminder'),
    (32, 'TaskCompleted'), (33, 'ApprovalRequired'), (34, 'TaskApproved'), (35, 'TaskRejected'),
    (40, 'BudgetWarning'), (41, 'BudgetExceeded'), (50, 'AchievementUnlocked'), (51, 'StreakUpdate'),
    (60, 'FamilyInvite'), (61, 'ChildAdded'), (62, 'GiftReceived'), (70, 'WeeklySummary'),
    (71, 'MonthlySummary'), (99, 'SystemAnnouncement')
)
SELECT json_build_object(
    'user_id', u."Id",
    'settings', json_build_object('email', nullif(u."Email", ''), 'quiet_hours', (
        SELECT json_build_object(
            'start', to_char("QuietHoursStart", 'HH24:MI'), 'end', to_char("QuietHoursEnd", 'HH24:MI'),
            'enabled', "QuietHoursEnabled")
        FROM "NotificationPreferences"
        WHERE "UserId" = u."Id" AND "QuietHoursStart" IS NOT NULL AND "QuietHoursEnd" IS NOT NULL
        ORDER BY "QuietHoursEnabled" DESC, "NotificationType" LIMIT 1)),
    'devices', (
        SELECT coalesce(json_agg(json_build_object(
            'platform', (ARRAY['ios', 'android', 'web'])[d."Platform"], 'provider', 'fcm', 'token', d."Token",
            'name', nullif(left(d."DeviceName", 255), ''), 'app_version', nullif(left(d."AppVersion", 64), ''))
            ORDER BY coalesce(d."LastUsedAt", d."CreatedAt")), '[]')
        FROM (
            SELECT * FROM "DeviceTokens"
            WHERE "UserId" = u."Id" AND "IsActive" AND coalesce("LastUsedAt", "CreatedAt") > now() - interval '90 days'
            ORDER BY coalesce("LastUsedAt", "CreatedAt") DESC LIMIT 5) d),
    'preferences', (
        SELECT coalesce(json_agg(json_build_object(
            'type', types.name, 'in_app', p."InAppEnabled", 'push', p."PushEnabled", 'email', p."EmailEnabled")), '[]')
        FROM "NotificationPreferences" p JOIN types ON types.code = p."NotificationType" WHERE p."UserId" = u."Id"),
    'topics', CASE WHEN u."FamilyId" IS NULL THEN '[]'::json ELSE json_build_array('family-' || u."FamilyId") END)
FROM "AspNetUsers" u
ORDER BY u."Id";
