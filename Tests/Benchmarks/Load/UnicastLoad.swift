// Carillon · UnicastLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Storage
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
    private let text: String
    /// What every frame is like that carries no time, made once, so that the load spends little on it.
    private let pattern: NodeFrame
    private var versions: [Int64]

    init(target: FrameTarget, users: [String], content: Content, size: Int) {
        self.target = target
        self.users = users
        self.content = content
        self.text = String(repeating: "x", count: size)
        self.pattern = Self.frame(target, content, data: #"{"text":"\#(self.text)"}"#)
        self.versions = Array(repeating: 0, count: users.count)
    }

    private static func frame(_ target: FrameTarget, _ content: Content, data: String) -> NodeFrame {
        switch content {
        case .events: return target.event(user: "", arguments: "[\(data)]")
        case .notifications:
            let body = #"{"id":"0199c82c-7e00-8001-8a2b-3c4d5e6f7a8b","type":"payment_received","data":\#(data)}"#
            return NodeFrame(kind: .notification, user: "", awaitingLane: .normal, body: Array(body.utf8))
        }
    }

    /// The next frame for a user.
    ///
    /// - Parameter sentAt: microseconds since 1970, which it tells its client.
    private mutating func frame(user index: Int, id: NotificationID, sentAt: Int64? = nil) -> NodeFrame {
        var frame = self.pattern
        if let sentAt {
            frame = Self.frame(self.target, self.content, data: #"{"sent_us":\#(sentAt),"text":"\#(self.text)"}"#)
        }
        frame.user = self.users[index]
        if self.content == .notifications {
            frame.id = id
            frame.previous = self.versions[index]
            frame.version = frame.previous + 1
            frame.unread = Int32(clamping: frame.version)
            self.versions[index] = frame.version
        }
        return frame
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
