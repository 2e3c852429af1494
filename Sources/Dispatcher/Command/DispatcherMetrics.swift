// Carillon · DispatcherMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Operations

/// The metrics that a dispatcher serves at `/metrics`.
enum DispatcherMetrics {
    static let families =
        MetricFamily.common + [
            MetricFamily("carillon_jobs_finished", .counter, "entries of the jobs streams that were acknowledged"),
            MetricFamily("carillon_frames_published", .counter, "frames published to nodes"),
            MetricFamily("carillon_dead_letters", .counter, "entries moved to the dead-letter queue"),
            MetricFamily("carillon_overflow_moved", .counter, "jobs moved to their organisation's overflow"),
            MetricFamily(
                "carillon_notifications_unproven", .counter,
                "notifications that no socket proved in time, with or without a push to follow"),
            MetricFamily(
                "carillon_notifications_cancelled", .counter,
                "notifications stored as cancelled because their job was cancelled first"),
            MetricFamily(
                "carillon_notifications_swept", .counter,
                "rows without an owner, or perhaps lost by a server, that the sweep enqueued again"),
            MetricFamily("carillon_broadcasts_pages", .counter, "pages of broadcasts stored"),
            MetricFamily(
                "carillon_broadcasts_held", .counter,
                "times that a broadcast waited because too many deliveries of its lane waited"),
            MetricFamily(
                "carillon_broadcasts_waiting", .gauge, by: ["state"],
                "broadcasts that wait for an operator: awaiting_confirmation, paused, failed; counts at most 10,000"),
            MetricFamily(
                "carillon_followups_postponed", .counter,
                "follow-ups scheduled: end of quiet hours, idle users, e-mail about unread notifications"),
            MetricFamily("carillon_followups_done", .counter, "follow-ups that came due and were handled"),
            MetricFamily("carillon_digests_held", .counter, "notifications that digests held for a summary"),
            MetricFamily(
                "carillon_summaries_faulty", .counter,
                "summaries that left items out or used the default text because their template's variables were missing"
            ),
            MetricFamily(
                "carillon_schedules_fired", .counter, "scheduled jobs and occurrences of recurring schedules that fired"
            ),
            MetricFamily(
                "carillon_schedules_failed", .gauge,
                "stopped recurring schedules, mostly because their time zone is missing; counts at most 10,000"),
            MetricFamily(
                "carillon_zones_unknown", .counter,
                "times that a user's time zone was unknown and the default applied"),
            MetricFamily(
                "carillon_clock_offset_seconds", .gauge,
                "seconds that PostgreSQL's clock is ahead of the dispatcher's"),
            MetricFamily(
                "carillon_deliveries_answered", .counter, by: ["provider", "outcome"],
                "delivery attempts: accepted, retry, failed, skipped"),
            MetricFamily(
                "carillon_deliveries_duration", .histogram, by: ["provider"], "duration of a call in seconds"),
            MetricFamily(
                "carillon_deliveries_failures", .counter, by: ["provider", "reason"],
                "failures by the provider's reason; other after 100 reasons, and for reasons that are sentences"),
            MetricFamily(
                "carillon_deliveries_held", .counter, by: ["provider", "reason"],
                "deliveries held back: out_of_use, rate, no_turn"),
            MetricFamily("carillon_provider_breaker", .gauge, by: ["provider", "app"], "0 closed, 1 probing, 2 open"),
            MetricFamily("carillon_provider_in_flight", .gauge, by: ["provider", "app"], "calls in flight"),
            MetricFamily(
                "carillon_provider_services_out", .gauge, by: ["provider", "app"],
                "services named by devices whose circuit breaker is open"),
            MetricFamily(
                "carillon_provider_misconfigured", .counter, by: ["provider", "app"],
                "times that a provider or push service rejected the configuration; "
                    + "of each at most once a minute if it rejects single devices"),
            MetricFamily(
                "carillon_provider_pauses_unshared", .counter,
                "pauses of accounts that were not shared: Redis was out of reach, or 1,000 accounts were paused"),
            MetricFamily(
                "carillon_outbox_held", .counter, by: ["database"],
                "polls that kept rows because a lane or an overflow was full; own is Carillon's database, "
                    + "others are numbered in the order of the setting"),
            MetricFamily(
                "carillon_outbox_waiting", .gauge, by: ["database"], "rows waiting; counts at most 10,000"),
            MetricFamily(
                "carillon_outbox_age", .gauge, by: ["database"],
                "seconds since the oldest waiting row was enqueued; grows on while the outbox cannot be read"),
            MetricFamily(
                "carillon_retention_removed", .counter, by: ["kind"],
                "items past their retention: notifications, tombstones, audit_days, audit_rows (of days without a "
                    + "partition), devices (switched off), switched_off_devices (deleted), cancellations, "
                    + "digest_items, broadcasts, dead_letters, excess_dead_letters (beyond 100,000)"),
            MetricFamily(
                "carillon_webhooks_requests", .counter, by: ["outcome"], values: ["accepted", "failed", "gone"],
                "requests to webhooks: accepted, failed, gone (410)"),
            MetricFamily(
                "carillon_webhooks_dropped", .counter, by: ["reason"], values: ["full", "old", "off"],
                "events dropped for a webhook: full (more than 10,000 waited), old (not accepted for a day), "
                    + "off (it was switched off)"),
        ]
}
