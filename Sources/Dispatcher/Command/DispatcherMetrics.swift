// Carillon · DispatcherMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Operations

/// The metrics that a dispatcher serves at `/metrics`.
enum DispatcherMetrics {
    static let families =
        MetricFamily.common + [
            MetricFamily("carillon_jobs_finished", .counter, "entries of the jobs streams that were finished"),
            MetricFamily("carillon_frames_published", .counter, "frames published to nodes"),
            MetricFamily(
                "carillon_entries_claimed", .counter,
                "entries taken over from dispatchers that are gone, or handed out in a reply that never arrived"),
            MetricFamily("carillon_dead_letters", .counter, "letters set aside"),
            MetricFamily("carillon_dead_replayed", .counter, "dead letters that went back to their streams"),
            MetricFamily("carillon_overflow_moved", .counter, "jobs moved to their organisation's overflow"),
            MetricFamily("carillon_overflow_returned", .counter, "jobs taken from an overflow"),
            MetricFamily(
                "carillon_notifications_unproven", .counter,
                "notifications that fell back to push because no proof came"),
            MetricFamily(
                "carillon_notifications_cancelled", .counter,
                "stored as cancelled, as their job was called off before it came"),
            MetricFamily("carillon_notifications_swept", .counter, "rows without an owner that were handed on again"),
            MetricFamily("carillon_broadcasts_pages", .counter, "pages of broadcasts that were stored"),
            MetricFamily(
                "carillon_broadcasts_held", .counter,
                "times that a broadcast waited, as its lane's deliveries streams were full"),
            MetricFamily(
                "carillon_followups_postponed", .counter,
                "what was put off: quiet hours, idle users, e-mail of what is unread"),
            MetricFamily("carillon_followups_done", .counter, "what was put off and looked at again"),
            MetricFamily("carillon_digests_held", .counter, "notifications that digests hold back for a summary"),
            MetricFamily(
                "carillon_summaries", .counter, "summaries of digests, and in place of more than five pushes at once"),
            MetricFamily(
                "carillon_summaries_faulty", .counter,
                "summaries without some items or in plain words, as the catalog's asked for what was not there"),
            MetricFamily(
                "carillon_schedules_stored", .counter, "jobs put aside that are due later, a part for each zone"),
            MetricFamily(
                "carillon_schedules_fired", .counter, "jobs put aside, and occurrences of recurring ones, that fired"),
            MetricFamily("carillon_schedules_failed", .counter, "recurring schedules whose zone has gone"),
            MetricFamily(
                "carillon_zones_unknown", .counter,
                "times that a user's zone was none that the machine knows, and the default counted"),
            MetricFamily(
                "carillon_clock_offset_seconds", .gauge,
                "how far PostgreSQL's clock is ahead of the dispatcher's machine"),
            MetricFamily(
                "carillon_deliveries_answered", .counter, by: ["provider", "outcome"],
                "accepted, retry, failed, skipped: how deliveries ended"),
            MetricFamily(
                "carillon_deliveries_duration", .histogram, by: ["provider"], "seconds to a provider's answer"),
            MetricFamily(
                "carillon_deliveries_failures", .counter, by: ["provider", "reason"],
                "failures by the provider's word; after 100 words other"),
            MetricFamily(
                "carillon_deliveries_held", .counter, by: ["provider", "reason"],
                "deliveries that had to wait: out_of_use, rate, no_turn"),
            MetricFamily("carillon_provider_breaker", .gauge, by: ["provider", "app"], "0 closed, 1 probing, 2 open"),
            MetricFamily("carillon_provider_in_flight", .gauge, by: ["provider", "app"], "calls under way"),
            MetricFamily(
                "carillon_provider_services_out", .gauge, by: ["provider", "app"],
                "services that devices name and that are out of use"),
            MetricFamily(
                "carillon_provider_misconfigured", .counter, by: ["provider", "app"],
                "times that a provider did not accept our configuration; once a minute where it concerns single devices"
            ),
            MetricFamily(
                "carillon_provider_pauses_unshared", .counter,
                "times that which accounts are to be left alone could not be shared: Redis was out of reach, "
                    + "or 1,000 are left alone already"),
            MetricFamily(
                "carillon_outbox_moved", .counter, by: ["database"],
                "rows moved to their streams; own is Carillon's database, others are numbered as they are listed"),
            MetricFamily("carillon_outbox_held", .counter, by: ["database"], "looks that found a lane full"),
            MetricFamily(
                "carillon_outbox_waiting", .gauge, by: ["database"], "rows that wait; 10,000 at most are counted"),
            MetricFamily(
                "carillon_outbox_age", .gauge, by: ["database"], "seconds since the oldest that waits was enqueued"),
            MetricFamily(
                "carillon_retention_removed", .counter, by: ["kind"],
                "notifications, tombstones, audit_days, devices, dead_letters: what was kept long enough"),
            MetricFamily(
                "carillon_webhooks_requests", .counter, by: ["outcome"],
                "accepted, failed, gone (410): requests to webhooks"),
            MetricFamily("carillon_webhooks_told", .counter, "events that webhooks took"),
            MetricFamily(
                "carillon_webhooks_dropped", .counter, by: ["reason"],
                "events that a webhook never got: full (more than 10,000 waited), old (nobody took them for "
                    + "a day), off (it ended)"),
        ]
}
