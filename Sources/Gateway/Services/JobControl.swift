// Carillon · JobControl.swift
// SPDX-License-Identifier: Apache-2.0

package import Logging
package import Model
import Shapes
package import Stores
package import Streams

/// Jobs after they were sent: how they stand, and calling them off.
package struct JobControl: Sendable {
    /// How a job stands.
    package struct Report: Sendable {
        package let name: CancellationStore.Name
        package let tally: CancellationStore.Tally
        package let cancelledAt: Timestamp?
        /// Whether nothing of it is under way any more.
        package let isFinal: Bool
    }

    private static let pageSize = 500
    /// The last millisecond of the year 9999.
    private static let latest: Int64 = 253_402_300_799_999
    /// Longer than any call to a provider takes: what was with one when its job was cancelled is settled after this.
    private static let longestFlight: Duration = .seconds(120)

    private let cancellations: CancellationStore
    private let publisher: FramePublisher
    private let keys: Keyspace
    private let now: @Sendable () -> Timestamp
    private let logger: Logger

    package init(
        cancellations: CancellationStore,
        publisher: FramePublisher,
        keys: Keyspace,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.cancellations = cancellations
        self.publisher = publisher
        self.keys = keys
        self.now = now
        self.logger = logger
    }

    /// What a job is called: its own id, or its entry's (`1700000000000-0`), with the stream before it (`stream/entry`) or
    /// without.
    package func name(org: String, id: String) -> CancellationStore.Name {
        let parts = id.split(separator: "/", omittingEmptySubsequences: false)
        let numbers = (parts.last ?? "").split(separator: "-", omittingEmptySubsequences: false)
        let streams = Lane.allCases.map { self.keys.jobs($0) }
        guard parts.count <= 2, numbers.count == 2, let milliseconds = Int64(numbers[0]), UInt64(numbers[1]) != nil,
            (0...Self.latest).contains(milliseconds),
            parts.count == 1 || streams.contains(String(parts[0]))
        else { return CancellationStore.Name(org: org, id: id) }
        return CancellationStore.Name(
            org: org,
            id: id,
            entries: parts.count == 2 ? [id] : streams.map { "\($0)/\(id)" },
            addedAt: Timestamp(milliseconds: milliseconds)
        )
    }

    /// How a job stands; nil if nothing is known of it.
    package func find(_ name: CancellationStore.Name) async throws -> Report? {
        let tally = try await self.cancellations.tally(name)
        let cancelledAt = try await self.cancellations.cancelledAt(name)
        guard tally.total > 0 || cancelledAt != nil else { return nil }
        let isSettled = tally.inFlight == 0 || cancelledAt.map { $0 + Self.longestFlight < self.now() } ?? false
        let isOpen = [.pending, .deferred].contains { tally.counts[$0, default: 0] > 0 }
        return Report(
            name: name,
            tally: tally,
            cancelledAt: cancelledAt,
            isFinal: tally.total > 0 && !isOpen && isSettled
        )
    }

    /// Calls a job off: what of it comes later is stored as cancelled, what nobody has got yet is cancelled and leaves the
    /// inboxes.
    ///
    /// May be repeated. One that was cut short has done a part of it, and goes on from there.
    package func cancel(_ name: CancellationStore.Name) async throws -> Report? {
        let at = self.now()
        try await self.cancellations.record(name, at: at)
        var last = ""
        while true {
            let page = try await self.cancellations.page(
                org: name.org, job: name.id, after: last, limit: Self.pageSize
            )
            guard let end = page.last else { break }
            last = end.user
            await self.tell(try await self.cancellations.cancel(page, at: at), at: at)
        }
        let entry = try await self.cancellations.ofEntry(name)
        await self.tell(try await self.cancellations.cancel(entry, at: at), at: at)
        return try await self.find(name)
    }

    /// Tells the sockets, as of any deletion: one that misses it finds a hole before its next frame and fills it.
    private func tell(_ withdrawals: [CancellationStore.Withdrawal], at: Timestamp) async {
        let frames = withdrawals.compactMap { withdrawal -> NodeFrame? in
            guard let place = withdrawal.place else { return nil }
            return NodeFrame(
                kind: .deleted,
                user: withdrawal.user,
                previous: place.version - 1,
                version: place.version,
                unread: place.unread,
                body: InboxChangeShape.encode(.ids([withdrawal.id]), at: at)
            )
        }
        do {
            try await self.publisher.publish(frames)
        } catch {
            self.logger.warning("cancellation not told to sockets", metadata: ["error": "\(error)"])
        }
    }
}
