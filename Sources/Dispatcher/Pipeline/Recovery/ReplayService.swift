// Carillon · ReplayService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import ServiceLifecycle
import Storage

/// Returns dead letters to their streams when an operator asks for it; any number of dispatchers
/// may do so at once.
///
/// A letter leaves the table once the stream has it. A crash in between appends it twice, which is
/// harmless: a job's notifications keep their ids, and a delivery is checked against its attempts.
package struct ReplayService: Service {
    private static let interval: Duration = .seconds(1)
    private static let hold: Duration = .seconds(60)
    private static let batchSize = 100

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        await self.dispatcher.untilShutdown("cannot replay dead letters; retrying") {
            while isRunning, try await self.replay().hasMore {}
        } wait: {
            await self.dispatcher.wait(for: self.dispatcher.alarms.replays, atLeast: Self.interval)
        }
    }

    /// Appends a batch of due letters.
    ///
    /// - Returns: how many there were, and whether more may be due.
    func replay() async throws -> (count: Int, hasMore: Bool) {
        let fence = self.dispatcher.fence(for: Self.hold)
        let (letters, hasMore) = try await self.dispatcher.database.deadLetters.claimReplays(
            now: self.dispatcher.now(), hold: Self.hold, limit: Self.batchSize)
        guard !letters.isEmpty else { return (0, false) }
        let entries = letters.map { letter in
            let fields = self.fields(letter)
            return (stream: self.stream(letter, fields), fields: fields)
        }
        // Another dispatcher may have claimed them; otherwise they are due again.
        guard fence.isOpen else { return (letters.count, hasMore) }
        let errors = await self.dispatcher.live.jobs.appendEach(entries)
        let appended = zip(letters, errors).filter { $1 == nil }.map { $0.0 }
        try await self.dispatcher.database.deadLetters.remove(appended)
        // The others are due again after the hold.
        for case let error? in errors { throw error }
        return (letters.count, hasMore)
    }

    /// Returns the stream of a letter, in the part that is read for its user now.
    ///
    /// It may have come from another part, if the number of parts has changed since.
    private func stream(_ letter: DeadLetterStore.Letter, _ fields: [(name: String, value: [UInt8])]) -> String {
        let keys = self.dispatcher.keys
        if let kind = keys.kind(ofDeliveries: letter.stream) {
            let text = fields.first { ExactText($0.name) == ExactText(DeliveryWork.field) }?.value ?? []
            let user = (try? DeliveryWork(text))?.user ?? ""
            return keys.part(of: user).deliveries(kind.provider, kind.lane)
        }
        if let lane = keys.lane(ofJobs: letter.stream) { return self.dispatcher.live.jobs.stream(for: lane, fields) }
        guard letter.stream == Keyspace.schedules else { return letter.stream }
        let catalog = self.dispatcher.catalog
        let job = try? catalog.job(
            fields.filter { ExactText($0.name) != ExactText(JobOrigin.replayField) }.map { ($0.name, $0.value[...]) })
        guard case .notification(let content)? = job?.payload else {
            // The job is still invalid. In the bulk lane it delays no other.
            return self.dispatcher.live.jobs.stream(for: .bulk, fields)
        }
        return self.dispatcher.live.jobs.stream(for: catalog.lane(of: content), fields)
    }

    private func fields(_ letter: DeadLetterStore.Letter) -> [(name: String, value: [UInt8])] {
        let fields = letter.fields
        if fields.count == 1, let field = fields.first, ExactText(field.name) == ExactText(DeliveryWork.field) {
            // It starts over, unless its attempts show that the device has it.
            guard let work = try? DeliveryWork(field.value) else { return fields }
            return [(DeliveryWork.field, work.fromTheStart.bytes)]
        }
        return JobOrigin(
            stream: letter.stream,
            entry: letter.entry,
            fields: fields.map { ($0.name, $0.value[...]) }
        ).replayFields
    }
}
