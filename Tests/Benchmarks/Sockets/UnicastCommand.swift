// Carillon · UnicastCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Storage
import Support
import Synchronization

/// Measures frames a second from PUBLISH to one socket per user, with and without confirmation, and
/// their latency; the yardstick is plain NIO channels.
struct UnicastCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unicast",
        abstract: "Measures frames a second and latency from PUBLISH to one socket per user."
    )

    @Option var sockets = 10_000
    // As many as a gateway holds of unrecorded proofs, so that it drops none.
    @Option var frames = 200_000
    @Option(help: "Warm-up frames.")
    var warmUp = 10_000
    @Option(help: "Frames per message for the throughput.")
    var batch = 64
    @Option(help: "Frames in flight for the throughput.")
    var window = 4_096
    @Option(help: "Frames for the latency.")
    var paced = 20_000
    @Option(help: "Frames a second for the latency, one per message.")
    var rate = 2_000.0
    @Option(help: "Size of a frame's text in bytes.")
    var size = 150
    @OptionGroup var cores: CoreOptions
    @OptionGroup var programs: ProgramOptions

    private struct Figure {
        var rate = UnicastLoad.Rate()
        var latencies: [Double] = []
    }

    func run() async throws {
        try self.cores.bindLoad()
        try await ScratchStack.use(self.programs) { stack in
            let users = (0..<self.sockets).map { "unicast-\($0)" }
            let gateway = try await FrameTarget.start(.gateway, in: stack, core: self.cores.server, users: users)
            let events = try await self.measure(gateway, stack, .events, users)
            let notifications = try await self.measure(gateway, stack, .notifications, users)
            try await gateway.stop()
            let server = try await FrameTarget.start(.bare, in: stack, core: self.cores.server, users: users)
            let bare = try await self.measure(server, stack, .events, users)
            try await server.stop()

            var report = Report("unicast")
            self.add(events, to: &report)
            self.add(bare, to: &report, prefix: "yardstick_nio_")
            report.add("ratio", events.rate.perSecond / bare.rate.perSecond)
            try report.print()

            report = Report("unicast_with_proof")
            self.add(notifications, to: &report)
            report.add("proven_per_second", notifications.rate.provenPerSecond ?? .nan)
            try report.print()
        }
    }

    private func measure(
        _ target: FrameTarget,
        _ stack: ScratchStack,
        _ content: UnicastLoad.Content,
        _ users: [String]
    ) async throws -> Figure {
        let proofs = ProofBoard(redis: stack.redis.connection)
        var load = UnicastLoad(target: target, users: users, content: content, size: self.size)
        _ = try await load.saturate(self.warmUp, batch: self.batch, window: self.window, proofs: proofs)
        let rate = try await load.saturate(self.frames, batch: self.batch, window: self.window, proofs: proofs)
        return Figure(rate: rate, latencies: try await load.pace(self.paced, rate: self.rate))
    }

    private func add(_ figure: Figure, to report: inout Report, prefix: String = "") {
        report.add("sockets", self.sockets)
        report.add("frames", self.frames)
        report.add("rate", self.rate)
        report.add("\(prefix)frames_per_second", figure.rate.perSecond)
        report.add("\(prefix)server_core_share", figure.rate.serverShare)
        report.add("\(prefix)load_core_share", figure.rate.loadShare)
        report.add("\(prefix)p50_ms", percentile(0.5, figure.latencies) * 1_000)
        report.add("\(prefix)p99_ms", percentile(0.99, figure.latencies) * 1_000)
    }
}

/// Frames for random users of one server.
struct UnicastLoad {
    enum Content {
        /// Ephemeral events, which need no confirmation.
        case events
        /// Notifications that continue each user's version and wait for confirmation. They are not
        /// stored, because a gateway sends whatever follows a socket's version.
        case notifications
    }

    let target: FrameTarget
    let users: [String]
    let content: Content
    private let text: String
    /// A frame without a time stamp, built once to keep the load cheap.
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

    /// Returns the next frame for a user.
    ///
    /// - Parameter sentAt: the time stamp in the frame, in microseconds since 1970.
    private mutating func frame(user index: Int, id: NotificationID, sentAt: Int64? = nil) -> NodeFrame {
        var frame = self.pattern
        if let sentAt {
            frame = Self.frame(self.target, self.content, data: #"{"sent_us":\#(sentAt),"text":"\#(self.text)"}"#)
        }
        frame.user = ExactText(self.users[index])
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

    /// The throughput of a saturated server.
    struct Rate {
        /// Frames that sockets received.
        var perSecond = 0.0
        /// Confirmations that the gateway recorded; nil for events.
        var provenPerSecond: Double?
        var serverShare = 0.0
        var loadShare = 0.0
    }

    /// Publishes `count` frames as fast as sockets receive them, in messages of `size`, with at
    /// most `window` in flight.
    mutating func saturate(_ count: Int, batch size: Int, window: Int, proofs: ProofBoard) async throws -> Rate {
        let plan = (0..<count).map { _ in (user: Int.random(in: self.users.indices), id: self.randomID()) }
        if self.content == .notifications {
            try await proofs.expect(plan.map { (self.users[$0.user], $0.id) })
        }
        let tally = self.target.load.frames
        let before = tally.count
        let (server, load) = (CoreShare(of: self.target.server.identifier), CoreShare())
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

    /// Publishes `count` frames one by one at `rate` a second; returns the sorted latencies in
    /// seconds.
    mutating func pace(_ count: Int, rate: Double) async throws -> [Double] {
        let load = self.target.load
        load.seen.withLock { $0.latencies = [] }
        load.isTimed.store(true, ordering: .relaxed)
        defer { load.isTimed.store(false, ordering: .relaxed) }
        let before = load.frames.count
        let start = ContinuousClock.now
        for index in 0..<count {
            let due = start + .seconds(Double(index) / rate)
            // Paces each frame to the requested rate.
            if due > .now { try await Task.sleep(until: due, tolerance: .zero) }
            let now = Int64(Date.now.timeIntervalSince1970 * 1_000_000)
            let frame = self.frame(user: .random(in: self.users.indices), id: self.randomID(), sentAt: now)
            try await self.target.publish(CollectionOfOne(frame))
        }
        try await load.frames.reach(before + count)
        return load.seen.withLock { $0.latencies }.sorted()
    }
}

/// Unconfirmed notifications in Redis, as a dispatcher would have added them.
struct ProofBoard: Sendable {
    let redis: RedisClient

    /// Adds notifications with a deadline that does not pass during the benchmark.
    func expect(_ notifications: [(user: String, id: NotificationID)]) async throws {
        let set = Live(self.redis).proofDeadlines
        let deadline = Timestamp(milliseconds: Int64((Date.now.timeIntervalSince1970 + 86_400) * 1_000))
        var rest = notifications[...]
        while !rest.isEmpty {
            var batch = RedisBatch()
            let waits = rest.prefix(512).map { item in
                (AwaitedProof(id: item.id, user: item.user, lane: .normal), deadline: deadline)
            }
            set.add(waits, in: &batch)
            rest = rest.dropFirst(512)
            try await self.redis.run(batch)
        }
    }

    /// Waits until all notifications are confirmed.
    func settle() async throws {
        let deadline = ContinuousClock.now + .seconds(120)
        while true {
            var batch = RedisBatch()
            for shard in 0..<Keyspace().proofShards {
                batch.append("ZCARD", .text(Keyspace().proofDeadlines(shard: shard)))
            }
            var left: Int64 = 0
            for reply in try await self.redis.send(batch) { left += try reply.integer() }
            if left == 0 { return }
            guard ContinuousClock.now < deadline else { throw ValidationError("\(left) unrecorded confirmations") }
            // Poll, because nothing signals that the gateway has removed them.
            try await Task.sleep(for: .milliseconds(5))
        }
    }
}
