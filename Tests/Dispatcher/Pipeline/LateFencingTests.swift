// Carillon · LateFencingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Support
import Synchronization
import Testing

@testable import Clients
@testable import Core
@testable import Pipeline
@testable import Providers
@testable import Storage

/// Deliveries whose lease expires, or whose breaker opens, just before their call, while they wait
/// for a turn.
@Suite(.timeLimit(.minutes(10)))
struct LateFencingTests {
    /// Something that happens once.
    private final class Incident: Sendable {
        private let action = Mutex<(@Sendable () -> Void)?>(nil)

        var isOver: Bool { self.action.withLock { $0 == nil } }

        func plan(_ action: @escaping @Sendable () -> Void) {
            self.action.withLock { $0 = action }
        }

        func happen() {
            let action = self.action.withLock { action in
                defer { action = nil }
                return action
            }
            action?()
        }
    }

    /// A provider that gives a fixed reply.
    private struct ScriptedChannel: ProviderChannel {
        let provider = Provider.fcm
        let app = "default"
        var result = ProviderReply.Result.answered(.accepted(id: "1"))
        var onAccount: @Sendable () -> Void = {}
        var onCall: @Sendable () -> Void = {}

        /// The sender reads it when it takes a turn of the rate limit.
        var account: String {
            self.onAccount()
            return self.app
        }

        func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
            self.onCall()
            return ProviderReply(self.result)
        }
    }

    /// A dispatcher that has taken one push, and a rival.
    private struct Scene {
        let dispatcher: Dispatcher
        let sender: DeliverySender
        let batch: LaneBatch
        let entry: String
        let rival: ConsumerGroup

        /// Ends the term in which the push was taken; a new one begins at once.
        func expireLease() {
            self.dispatcher.leaseClock.hold(withoutGap: false)
        }

        func takeOver() async throws {
            let name = self.dispatcher.name
            #expect(try await self.rival.claim(self.entry, from: name, idle: .zero) != nil)
        }

        /// Sends the batch and returns the outcomes.
        func send() async throws -> [DeliveryOutcome] {
            let prepared = try await self.sender.prepare(self.batch)
            let outcomes = Outcomes(prepared.ended)
            await withDiscardingTaskGroup { sends in
                await self.sender.send(prepared, permits: LanePermits(8), group: &sends) { outcomes.add($0) }
            }
            return outcomes.all
        }

        var isInFlight: Bool { self.dispatcher.inFlight.contains(self.entry, of: self.batch.group.stream) }

        /// The state of the provider's calls.
        var overview: ProviderHealth.Overview? {
            self.sender.health.overviews(of: ["default"], now: TestDispatcher.now)["default"]
        }
    }

    private final class Outcomes: Sendable {
        private let outcomes: Mutex<[DeliveryOutcome]>

        init(_ outcomes: [DeliveryOutcome] = []) {
            self.outcomes = Mutex(outcomes)
        }

        func add(_ outcome: DeliveryOutcome) {
            self.outcomes.withLock { $0.append(outcome) }
        }

        var all: [DeliveryOutcome] { self.outcomes.withLock { $0 } }
    }

    private static func with(
        _ channel: any ProviderChannel,
        messagesPerSecond: Int? = nil,
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        _ body: (Scene) async throws -> Void
    ) async throws {
        try await TestDispatcher.with(channel, instant: instant) { dispatcher, database in
            let redis = dispatcher.redis
            try await TestDispatcher.storePushes(in: database.pool)
            dispatcher.channels.replace(
                with: ChannelDirectory.Entry(channel, messagesPerSecond: messagesPerSecond))
            let stream = dispatcher.keys.deliveries(.fcm, .normal)
            let (notification, device) = (TestDispatcher.notification().id, TestDispatcher.phone().id)
            let work = DeliveryWork(
                notification: notification, device: device, user: "ada", attempt: 0, isRepeat: false)
            try await redis.send("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
            let group = dispatcher.group(stream)
            try await group.create()
            let entries = try await group.readWaiting(count: 10)
            dispatcher.inFlight.take(entries.map(\.id), of: stream)
            try await body(
                Scene(
                    dispatcher: dispatcher,
                    sender: DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512),
                    batch: LaneBatch(
                        lane: .normal, group: group, entries: entries,
                        term: try #require(dispatcher.leaseClock.term)),
                    entry: try #require(entries.first).id,
                    rival: ConsumerGroup(stream: stream, consumer: "rival", connection: redis)
                ))
        }
    }

    @Test("a push whose lease expires while it waits for the rate limit is left to its new owner")
    func rateLimit() async throws {
        let expiry = Incident()
        let calls = Mutex(0)
        let channel = ScriptedChannel(
            onAccount: { expiry.happen() }, onCall: { calls.withLock { $0 += 1 } })
        try await Self.with(channel, messagesPerSecond: 100) { scene in
            try await scene.takeOver()
            expiry.plan { scene.expireLease() }
            #expect(try await scene.send().isEmpty)
            #expect(expiry.isOver)
            #expect(calls.withLock { $0 } == 0)
            #expect(!scene.isInFlight)
            #expect(scene.overview == ProviderHealth.Overview())
        }
    }

    @Test(
        "a call that was not made before the lease expired leaves the push to its new owner",
        arguments: [ProviderReply.Result.fenced, .noTurn])
    func call(result: ProviderReply.Result) async throws {
        let expiry = Incident()
        try await Self.with(ScriptedChannel(result: result, onCall: { expiry.happen() })) { scene in
            try await scene.takeOver()
            expiry.plan { scene.expireLease() }
            #expect(try await scene.send().isEmpty)
            #expect(expiry.isOver)
            #expect(!scene.isInFlight)
            #expect(scene.overview == ProviderHealth.Overview())
        }
    }

    @Test("an entry that Redis gets after its twin was sent is not sent again")
    func lateTwin() async throws {
        let calls = Mutex(0)
        try await Self.with(ScriptedChannel(onCall: { calls.withLock { $0 += 1 } })) { scene in
            let settler = DeliverySettler(
                dispatcher: scene.dispatcher, provider: .fcm, metrics: PipelineMetrics.Deliveries(.fcm))
            try await settler.settle(try await scene.send())
            #expect(calls.withLock { $0 } == 1)
            // Not marked as a repeat, because the append was thought to be the first.
            let late = scene.batch.with([StreamEntry(id: "9999999999999-0", fields: scene.batch.entries[0].fields)])
            let prepared = try await scene.sender.prepare(late)
            let outcomes = Outcomes()
            await withDiscardingTaskGroup { sends in
                await scene.sender.send(prepared, permits: LanePermits(8), group: &sends) { outcomes.add($0) }
            }
            #expect(calls.withLock { $0 } == 1)
            #expect(
                outcomes.all.allSatisfy { if case .refused(.alreadyAccepted) = $0.result { true } else { false } })
            #expect(outcomes.all.count == 1)
        }
    }

    @Test(
        "a settled push holds no claim, whether it has ended or waits for a retry",
        arguments: [ProviderAnswer.accepted(id: "1"), .retry(reason: "HTTP_503", after: nil)])
    func releasedClaim(answer: ProviderAnswer) async throws {
        try await Self.with(ScriptedChannel(result: .answered(answer))) { scene in
            let redis = scene.dispatcher.redis
            let settler = DeliverySettler(
                dispatcher: scene.dispatcher, provider: .fcm, metrics: PipelineMetrics.Deliveries(.fcm))
            let sent = try await scene.send()
            let claims = scene.dispatcher.keys.sendClaims(sent.compactMap(\.work), .fcm)
            let claim = RedisArgument.bytes(try #require(claims.first))
            #expect(try await redis.send("EXISTS", claim).integer() == 1)
            try await settler.settle(sent)
            #expect(try await redis.send("EXISTS", claim).integer() == 0)
        }
    }

    @Test(
        "an entry that was taken over before its outcome was settled is left to its new owner",
        arguments: [
            DeliveryOutcome.Result.answered(.accepted(id: "1")),
            .answered(.retry(reason: "HTTP_503", after: nil)),
            .heldBack(until: TestDispatcher.now, reason: "rate", scope: BreakerScope("default")),
        ])
    func settledLate(result: DeliveryOutcome.Result) async throws {
        try await Self.with(ScriptedChannel()) { scene in
            let settler = DeliverySettler(
                dispatcher: scene.dispatcher, provider: .fcm, metrics: PipelineMetrics.Deliveries(.fcm))
            let sent = try #require(try await scene.send().first)
            let outcome = DeliveryOutcome(
                entry: sent.entry, group: sent.group, lane: sent.lane, term: sent.term, work: sent.work,
                facts: sent.facts, app: sent.app, sentAt: sent.sentAt, result: result, duration: sent.duration)
            try await scene.takeOver()
            scene.expireLease()
            try await settler.settle([outcome])
            let live = scene.dispatcher.live
            #expect(try await live.retries.count(provider: .fcm, lane: .normal) == 0)
            #expect(try await live.retries.heldScopes(provider: .fcm, lane: .normal).isEmpty)
            #expect(try await scene.rival.pending(of: "rival", count: 10).map(\.id) == [scene.entry])
            #expect(!scene.isInFlight)
            // The new owner still has the claim, so no other entry of the delivery is sent.
            let work = try #require(sent.work)
            let isTaken = try await live.sendClaims.claim([(work, "0-1")], provider: .fcm, lane: .normal)
            #expect(isTaken == [false])
            let attempts = try await scene.dispatcher.database.pool.query("SELECT FROM carillon.delivery_attempts")
            #expect(attempts.count == (result.isCall ? 1 : 0))
        }
    }

    @Test(
        "a push whose lease expires while it waits for a connection is sent only if it is still its own",
        arguments: [true, false])
    func queue(isTakenOver: Bool) async throws {
        try await Self.whileWaiting { scene, sandbox, push, release in
            if isTakenOver { try await scene.takeOver() }
            scene.expireLease()
            await release()
            let outcomes = try await push.value
            #expect(sandbox.received().map(\.token) == (isTakenOver ? ["first"] : ["first", "phone"]))
            #expect(outcomes.map(\.entry.id) == (isTakenOver ? [] : [scene.entry]))
            #expect(outcomes.allSatisfy { $0.work?.isRepeat == true })
            #expect(scene.isInFlight == !isTakenOver)
            #expect(scene.overview == ProviderHealth.Overview())
        }
    }

    @Test("a push whose breaker opens while it waits for a connection is held back, and uses up no try")
    func paused() async throws {
        try await Self.whileWaiting { scene, sandbox, push, release in
            let until = TestDispatcher.now + .seconds(60)
            scene.sender.health.hold(["default"], until: until, now: TestDispatcher.now)
            await release()
            let outcomes = try await push.value
            #expect(sandbox.received().map(\.token) == ["first"])
            #expect(outcomes.count == 1)
            let outcome = try #require(outcomes.first)
            guard case .heldBack(let end, let reason, _) = outcome.result else {
                Issue.record("\(outcome.result)")
                return
            }
            #expect(end == until && reason == "out_of_use")
            #expect(outcome.work?.attempt == 0)
            #expect(scene.overview == ProviderHealth.Overview(state: .open(until: until)))
        }
    }

    @Test("a push whose breaker opened while it waited for long is held back without another lookup")
    func pausedLate() async throws {
        let opening = Incident()
        let start = ContinuousClock.now
        let channel = ScriptedChannel(result: .fenced, onCall: { opening.happen() })
        try await Self.with(channel, instant: { start + (opening.isOver ? Duration.seconds(2) : .zero) }) { scene in
            let (health, until) = (scene.sender.health, TestDispatcher.now + .seconds(60))
            opening.plan { health.hold(["default"], until: until, now: TestDispatcher.now) }
            let prepared = try await scene.sender.prepare(scene.batch)
            let outcomes = Outcomes(prepared.ended)
            // A lookup would not find the device.
            try await scene.dispatcher.database.pool.query("DELETE FROM carillon.devices")
            await withDiscardingTaskGroup { sends in
                await scene.sender.send(prepared, permits: LanePermits(8), group: &sends) { outcomes.add($0) }
            }
            #expect(opening.isOver)
            #expect(outcomes.all.count == 1)
            let outcome = try #require(outcomes.all.first)
            guard case .heldBack(let end, let reason, _) = outcome.result else {
                Issue.record("\(outcome.result)")
                return
            }
            #expect(end == until && reason == "out_of_use")
            #expect(scene.overview == ProviderHealth.Overview(state: .open(until: until)))
        }
    }

    /// Runs the body while a push waits for the only place, which `release` frees.
    private static func whileWaiting(
        _ body: (
            _ scene: Scene, _ sandbox: ProviderSandbox, _ push: Task<[DeliveryOutcome], any Error>,
            _ release: () async -> Void
        ) async throws -> Void
    ) async throws {
        try await ProviderSandbox.with { sandbox in
            var configuration = TransferConfiguration()
            configuration.caFile = sandbox.caPath
            configuration.maximumInFlight = 1
            let transfers = TransferPool(
                configuration: configuration, allowsPrivateAddresses: true, logger: TestLog.logger)
            let context = ChannelContext(
                transfers: transfers, now: { ProviderBench.now }, logger: TestLog.logger, read: ProviderBench.contents)
            let channel = try await FCM.channel(
                app: "default", settings: ProviderProfile.fcm.settings(sandbox), shape: .standard, context: context)
            let transfer = try transfers.client(of: .fcm)
            try await Self.with(channel) { scene in
                let first = await channel.send(ProviderBench.message(), to: Messages.device(.fcm, token: "first"))
                #expect(first.isAccepted, "the access token is there")
                let holder = Task {
                    await channel.send(ProviderBench.message(), to: Messages.device(.fcm, token: "silent-1"))
                }
                try await eventually("the only place is taken") { transfer.snapshot().inFlight == 1 }
                let sending = Task { try await scene.send() }
                try await eventually("the push waits") { transfer.snapshot().waiting == 1 }
                try await body(scene, sandbox, sending) {
                    holder.cancel()
                    _ = await holder.value
                }
            }
            await transfers.shutdown()
        }
    }
}
