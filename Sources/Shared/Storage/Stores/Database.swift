// Carillon · Database.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// PostgreSQL, with a store for each subject.
package struct Database: Sendable {
    package let pool: PostgresPool
    /// Where pages of inboxes are read first; nil for the primary alone.
    let standby: StandbyReads?

    package init(_ pool: PostgresPool, standby: StandbyReads? = nil) {
        self.pool = pool
        self.standby = standby
    }

    package var broadcasts: BroadcastStore { BroadcastStore(pool: self.pool) }
    package var cancellations: CancellationStore { CancellationStore(pool: self.pool) }
    package var clientReports: ClientReportStore { ClientReportStore(pool: self.pool) }
    package var deadLetters: DeadLetterStore { DeadLetterStore(pool: self.pool) }
    package var deliveries: DeliveryStore { DeliveryStore(pool: self.pool) }
    package var devices: DeviceStore { self.devices(limits: DeviceLimits()) }
    package var digests: DigestStore { DigestStore(pool: self.pool) }
    package var due: DueStore { DueStore(pool: self.pool) }
    package var exports: UserExportStore { UserExportStore(pool: self.pool) }
    package var followUps: FollowUpStore { FollowUpStore(pool: self.pool) }
    /// Keep the value: only concurrent calls on one value share statements.
    package var inboxes: InboxStore { InboxStore(self) }
    package var jobs: JobListStore { JobListStore(pool: self.pool) }
    package var layout: LayoutStore { LayoutStore(pool: self.pool) }
    package var notifications: NotificationStore { NotificationStore(pool: self.pool) }
    package var outbox: OutboxStore { OutboxStore(pool: self.pool) }
    package var preferences: PreferenceStore { PreferenceStore(pool: self.pool) }
    package var recipients: RecipientStore { RecipientStore(pool: self.pool) }
    package var overviews: OverviewStore { OverviewStore(pool: self.pool) }
    package var people: PeopleStore { PeopleStore(pool: self.pool) }
    package var retention: RetentionStore { RetentionStore(pool: self.pool) }
    package var revocations: RevocationStore { RevocationStore(pool: self.pool) }
    package var schedules: ScheduleStore { ScheduleStore(pool: self.pool) }
    package var sessions: SessionStore { SessionStore(pool: self.pool) }
    package var statistics: StatisticsStore { StatisticsStore(pool: self.pool) }
    package var sweep: SweepStore { SweepStore(pool: self.pool) }
    package var topics: TopicStore { TopicStore(pool: self.pool) }
    package var traces: TraceStore { TraceStore(pool: self.pool) }
    package var users: UserStore { self.users(limits: DeviceLimits()) }
    package var webhooks: WebhookStore { WebhookStore(pool: self.pool) }

    package func devices(limits: DeviceLimits) -> DeviceStore { DeviceStore(pool: self.pool, limits: limits) }

    package func users(limits: DeviceLimits) -> UserStore { UserStore(pool: self.pool, limits: limits) }

    /// PostgreSQL's time, which stamps rows.
    ///
    /// Selecting rows by age uses it too: a machine whose own clock jumps would skip rows or remove
    /// new ones.
    package func clock() async throws(PostgresError) -> Timestamp {
        let result = try await self.pool.query("SELECT clock_timestamp()")
        guard let row = result.first else { throw PostgresError(.decoding, "the clock query returned no row") }
        return try row.timestamp(0)
    }

    /// The lowest version of every inbox; it changes if the database was restored to an earlier
    /// state.
    package func epoch() async throws(PostgresError) -> Int64 {
        let result = try await self.pool.query("SELECT \(EpochSQL.base)")
        guard let row = result.first else { throw PostgresError(.decoding, "the epoch query returned no row") }
        return try row.int8(0)
    }
}

/// Server settings under which the stores' statements run.
package enum StoreSession {
    /// Makes every statement use an index, with a plan that is kept.
    ///
    /// Statistics may date from empty tables, so the planner must not choose a full scan by them.
    /// Nor should it plan at each call.
    package static let settings: [(name: String, value: String)] = [
        ("jit", "off"),
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
    ]

    /// For connections that read users page by page: each page continues in the index instead of
    /// sorting all that is left, whatever the statistics say.
    package static let pageSettings: [(name: String, value: String)] =
        Self.settings + [("enable_bitmapscan", "off"), ("enable_sort", "off")]
}
