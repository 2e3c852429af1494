// Carillon · UnicastLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import Model
import Redis
import Streams
import Synchronization

/// Frames for random users of one server.
struct UnicastLoad {
    enum Content {
        /// Ephemeral events, which nothing proves.
        case events
        /// Notifications, which follow each user's last version and whose proof ends a wait. They are on no disk: a
        /// gateway sends what follows the version that a socket has.
        case notifications
    }

    let target: FrameTarget
    let users: [String]
    let content: Content
    let text: String
    private var versions: [Int64]

    init(target: FrameTarget, users: [String], content: Content, size: Int) {
        self.target = target
        self.users = users
        self.content = content
        self.text = String(repeating: "x", count: size)
        self.versions = Array(repeating: 0, count: users.count)
    }

    private mutating func frame(user index: Int, id: NotificationID, sentAt: Int64? = nil) -> NodeFrame {
        let user = self.users[index]
        let moment = sentAt.map { #""sent_us":\#($0),"# } ?? ""
        let data = #"{\#(moment)"text":"\#(self.text)"}"#
        switch self.content {
        case .events: return self.target.event(user: user, arguments: "[\(data)]")
        case .notifications:
            let previous = self.versions[index]
            self.versions[index] += 1
            return NodeFrame(
                kind: .notification,
                user: user,
                previous: previous,
                version: previous + 1,
                unread: Int32(clamping: previous + 1),
                awaitingLane: .normal,
                id: id,
                body: Array(#"{"id":"\#(id)","type":"payment_received","data":\#(data)}"#.utf8)
            )
        }
    }

    private func randomID() -> NotificationID {
        NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
    }

    /// What a saturated server did.
    struct Rate {
        /// Frames that sockets got.
        var perSecond = 0.0
        /// Proofs that the gateway recorded; nil where nothing waits for any.
        var provenPerSecond: Double?
        var serverShare = 0.0
        var loadShare = 0.0
    }

    /// Publishes `count` frames as fast as sockets get them, in messages of `size`, with at most `window` on their way.
    mutating func saturate(_ count: Int, batch size: Int, window: Int, proofs: ProofBoard) async throws -> Rate {
        let plan = (0..<count).map { _ in (user: Int.random(in: self.users.indices), id: self.randomID()) }
        if self.content == .notifications {
            try await proofs.expect(plan.map { (self.users[$0.user], $0.id) })
        }
        let tally = self.target.load.frames
        let before = tally.count
        let (server, load) = (CoreShare(of: self.target.server.pid), CoreShare())
        let start = ContinuousClock.now
        var sent = 0
        while sent < count {
            let part = plan[sent..<min(sent + size, count)]
            try await tally.reach(before + sent + part.count - window)
            var frames: [NodeFrame] = []
            for item in part { frames.append(self.frame(user: item.user, id: item.id)) }
            try await self.target.publish(frames)
            sent += part.count
        }
        let elapsed = (try await tally.reach(before + count) - start).inSeconds
        var rate = Rate(perSecond: Double(count) / elapsed, serverShare: server.value, loadShare: load.value)
        if self.content == .notifications {
            try await proofs.settle()
            rate.provenPerSecond = Double(count) / (ContinuousClock.now - start).inSeconds
        }
        return rate
    }

    /// Publishes `count` frames one by one, `rate` a second; gives the seconds that each took, sorted.
    mutating func pace(_ count: Int, rate: Double) async throws -> [Double] {
        let load = self.target.load
        load.seen.withLock { $0.latencies = [] }
        load.isTimed.store(true, ordering: .relaxed)
        defer { load.isTimed.store(false, ordering: .relaxed) }
        let before = load.frames.count
        let start = ContinuousClock.now
        for index in 0..<count {
            let due = start + .seconds(Double(index) / rate)
            // The asked rate, frame by frame.
            if due > .now { try await Task.sleep(until: due, tolerance: .zero) }
            let now = Int64(Date.now.timeIntervalSince1970 * 1_000_000)
            let frame = self.frame(user: .random(in: self.users.indices), id: self.randomID(), sentAt: now)
            try await self.target.publish(CollectionOfOne(frame))
        }
        try await load.frames.reach(before + count)
        return load.seen.withLock { $0.latencies }.sorted()
    }
}

/// What waits for its proof in Redis, as a dispatcher would have put it there.
struct ProofBoard: Sendable {
    let redis: RedisConnection

    /// Has notifications wait, with a deadline that does not come.
    func expect(_ notifications: [(user: String, id: NotificationID)]) async throws {
        let set = UnconfirmedSet(connection: self.redis, keys: Keyspace())
        let deadline = Timestamp(milliseconds: Int64((Date.now.timeIntervalSince1970 + 86_400) * 1_000))
        var rest = notifications[...]
        while !rest.isEmpty {
            var batch = RedisBatch()
            for item in rest.prefix(512) {
                let waiting = UnconfirmedNotification(id: item.id, user: item.user, lane: .normal)
                set.add(waiting, deadline: deadline, in: &batch)
            }
            rest = rest.dropFirst(512)
            for reply in try await self.redis.send(batch) { _ = try reply.checked() }
        }
    }

    /// Waits until none waits any more.
    func settle() async throws {
        let deadline = ContinuousClock.now + .seconds(120)
        while true {
            var batch = RedisBatch()
            for shard in 0..<Keyspace.unconfirmedShards {
                batch.append("ZCARD", .text(Keyspace().unconfirmed(shard: shard)))
            }
            var left: Int64 = 0
            for reply in try await self.redis.send(batch) { left += try reply.integer() }
            if left == 0 { return }
            guard ContinuousClock.now < deadline else { throw ValidationError("\(left) proofs were not recorded") }
            // The gateway takes them out of Redis and tells nobody.
            try await Task.sleep(for: .milliseconds(5))
        }
    }
}
