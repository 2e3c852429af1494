// Carillon · RedisConnection.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import DequeModule
import Logging
import NIOCore
import Synchronization

/// One Redis connection that reconnects.
///
/// An actor on its event loop. Callers on any thread add commands to a mailbox; the loop writes
/// everything in it with one flush a turn, so concurrent calls are pipelined. Replies arrive in
/// order and resume their callers. Without a connection, commands wait until their deadline.
/// Cancelling the caller does not stop a command; its deadline bounds the wait.
///
/// Use a separate connection for blocking commands: every other command would wait behind them.
actor RedisConnection {
    private enum Phase {
        case idle
        case connecting
        case loggingIn(any Channel)
        case ready(any Channel)
        case closed

        /// The open channel.
        var channel: (any Channel)? {
            switch self {
            case .loggingIn(let channel), .ready(let channel): channel
            case .idle, .connecting, .closed: nil
            }
        }
    }

    /// The shortest interval between two checks of deadlines.
    private static let checkInterval = TimeAmount.milliseconds(50)

    private let eventLoop: any EventLoop
    private let configuration: RedisConfiguration
    private let connector: RedisConnector
    private let logger: Logger
    /// Called after each loss and each failure to connect.
    private let onLoss: @Sendable () -> Void
    private nonisolated let mailbox: CommandMailbox
    private nonisolated let logins = Atomic<Int>(0)
    private nonisolated let readiness = Atomic(false)
    private nonisolated let absence = Atomic(false)
    /// The server's id of the connection; 0 if it is unknown.
    private nonisolated let identifier = Atomic<Int>(0)

    private var phase = Phase.idle
    private var reader: RESPReader?
    private var pending = PendingReplies()
    /// The server at the other end.
    private var server: RedisAddress?
    /// Whether a login checks that the server is a master: always if Sentinels name it, and once a
    /// replica has refused a write.
    private var checksRole: Bool
    private var attempt = 0
    private var lastFailure: String?
    /// Numbers the channels, so that late events of an abandoned channel are ignored.
    private var generation = 0
    /// When the last bytes arrived.
    private var lastArrival = NIODeadline.distantPast
    private var deadlineTimer: Scheduled<Void>?
    private var sentinelTimer: RepeatedTask?
    /// When ``deadlineTimer`` fires.
    private var nextCheck = NIODeadline.distantFuture

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        self.eventLoop.executor.asUnownedSerialExecutor()
    }

    /// Creates a connection that opens at once and reopens after each loss until ``close()`` or
    /// deallocation.
    ///
    /// - Throws: ``RedisError`` with code `configuration`.
    init(
        _ configuration: RedisConfiguration,
        on eventLoop: any EventLoop,
        logger: Logger,
        onLoss: @escaping @Sendable () -> Void = {}
    ) throws(RedisError) {
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.connector = try RedisConnector(configuration)
        self.checksRole = self.connector.usesSentinels
        self.logger = logger
        self.onLoss = onLoss
        self.mailbox = CommandMailbox(
            maximumCommands: configuration.maximumWaitingCommands,
            maximumBytes: configuration.maximumWaitingBytes
        )
        eventLoop.execute { self.assumeIsolated { $0.start() } }
    }

    deinit {
        // No caller can be waiting: a waiting caller retains the connection.
        self.deadlineTimer?.cancel()
        self.sentinelTimer?.cancel()
        self.phase.channel?.close(promise: nil)
    }

    /// Whether commands reach the server now.
    nonisolated var isReady: Bool { self.readiness.load(ordering: .acquiring) }

    /// Whether the connection is down and a try to open it again has failed.
    nonisolated var isAway: Bool { self.absence.load(ordering: .acquiring) }

    /// The number of logins so far; a change means that the server may have restarted.
    nonisolated var session: Int { self.logins.load(ordering: .acquiring) }

    // MARK: Calls, from any thread

    /// Sends one command and returns its reply.
    nonisolated func send(_ arguments: [RedisArgument], deadline: NIODeadline) async -> Result<RedisReply, RedisError> {
        await withUnsafeContinuation { (continuation: ReplyWaiter.One) in
            self.submit(.one(continuation), deadline: deadline) { buffer in
                buffer.writeRedisHead(argumentCount: arguments.count)
                for argument in arguments { buffer.writeRedisArgument(argument) }
            }
        }
    }

    /// Sends the batch in one write and returns all replies, error replies included.
    nonisolated func send(_ batch: RedisBatch, deadline: NIODeadline) async -> Result<[RedisReply], RedisError> {
        await self.send(batch.bytes, count: batch.count, deadline: deadline)
    }

    /// Sends commands in wire form in one write and returns all replies, error replies included.
    ///
    /// - Parameter count: the number of commands, at least 1.
    nonisolated func send(
        _ bytes: ByteBuffer,
        count: Int,
        deadline: NIODeadline
    ) async -> Result<[RedisReply], RedisError> {
        await withUnsafeContinuation { (continuation: ReplyWaiter.Many) in
            self.submit(.many(continuation, count: count), deadline: deadline) { buffer in
                // Usually no other call waits, so the mailbox shares the memory without a copy.
                if buffer.readableBytes == 0 { buffer = bytes.slice() } else { buffer.writeImmutableBuffer(bytes) }
            }
        }
    }

    /// Ends the command that blocks this connection, as if its time were up.
    ///
    /// Does nothing if no command blocks. A server that does not allow it lets the time run out.
    ///
    /// - Parameter other: a connection to the same server.
    nonisolated func unblock(through other: RedisConnection) async {
        let identifier = self.identifier.load(ordering: .acquiring)
        guard identifier > 0 else { return }
        _ = await other.send(
            ["CLIENT", "UNBLOCK", .integer(Int64(identifier))], deadline: other.configuration.deadline())
    }

    /// Sends a batch to a server over a new connection, and returns all replies, error replies
    /// included.
    ///
    /// The server has a second to accept the connection, and another to answer. Logs nothing,
    /// because the caller reports the failure.
    static func ask(
        _ server: RedisAddress,
        _ batch: RedisBatch,
        _ configuration: RedisConfiguration,
        on eventLoop: any EventLoop
    ) async throws(RedisError) -> [RedisReply] {
        var own = configuration
        own.address = server
        own.connectTimeout = .seconds(1)
        own.commandTimeout = .seconds(1)
        own.waitsForServer = false
        let logger = Logger(label: "carillon.redis.ask") { _ in SwiftLogNoOpLogHandler() }
        let connection = try RedisConnection(own, on: eventLoop, logger: logger)
        let result: Result<[RedisReply], RedisError> = await connection.send(batch, deadline: own.deadline())
        await connection.close()
        return try result.get()
    }

    /// Closes for good; calls that were not sent fail with `closed`.
    func close() {
        let error = RedisError(.closed, "the client was closed")
        let channel = self.phase.channel
        // Set first, because closing a channel reports its end at once.
        self.phase = .closed
        channel?.close(promise: nil)
        self.deadlineTimer?.cancel()
        self.sentinelTimer?.cancel()
        for call in self.mailbox.close(error) { call.waiter.fail(error) }
        self.failPending(RedisError(.connectionLost, "the client was closed"))
    }

    private nonisolated func submit(
        _ waiter: ReplyWaiter,
        deadline: NIODeadline,
        write: (inout ByteBuffer) -> Void
    ) {
        let patience = self.configuration.deadline()
        guard self.mailbox.add(waiter, deadline: deadline, patience: patience, write: write) == true else { return }
        self.eventLoop.execute { self.assumeIsolated { $0.flush() } }
    }

    // MARK: On the event loop

    private func start() {
        guard case .idle = self.phase else { return }
        self.connect()
        self.scheduleCheck()
        guard self.connector.usesSentinels else { return }
        let interval = TimeAmount(RedisConnector.sentinelInterval)
        self.sentinelTimer = self.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) {
            [weak self] _ in
            guard let self else { return }
            Task { await self.checkMaster() }
        }
    }

    /// Disconnects from a server that is no longer the master, as it may serve stale reads.
    private func checkMaster() async {
        guard case .ready = self.phase, let server else { return }
        let generation = self.generation
        let isMaster = await self.connector.isMaster(server, on: self.eventLoop)
        guard !isMaster, generation == self.generation else { return }
        self.disconnect(RedisError(.connectionLost, "Sentinel names another master than \(server)"))
    }

    private func connect() {
        self.phase = .connecting
        self.generation += 1
        let generation = self.generation
        self.connector.connect(on: self.eventLoop) { [weak self] event in
            self?.assumeIsolated { $0.receive(event, from: generation) }
        }.whenComplete { [weak self] result in
            guard let self else { return RedisConnector.close(result) }
            self.assumeIsolated { $0.connected(result) }
        }
    }

    private func connected(_ result: Result<RedisConnector.Opened, any Error>) {
        guard case .connecting = self.phase else { return RedisConnector.close(result) }
        do {
            let channel = try result.get().channel
            self.server = try result.get().server
            self.reader = try RESPReader()
            self.phase = .loggingIn(channel)
            let login = self.connector.login(checksRole: self.checksRole)
            let deadline = self.configuration.deadline()
            self.pending.add(
                WaitingCall(
                    waiter: .login(count: login.count), deadline: deadline, patience: deadline, byteCount: 0))
            channel.writeAndFlush(login.bytes, promise: nil)
        } catch {
            self.retry(NetworkFault.words(error))
        }
    }

    private func retry(_ reason: String) {
        if self.lastFailure != reason {
            self.logger.warning(
                "redis connection lost; reconnecting",
                metadata: ["redis.address": "\(self.configuration.address)", "error": "\(reason)"]
            )
        }
        self.lastFailure = reason
        self.onLoss()
        if !self.configuration.waitsForServer { self.failWaiting(until: .distantFuture) }
        self.phase = .connecting
        if self.attempt > 0 { self.absence.store(true, ordering: .releasing) }
        let delay = self.configuration.reconnect.delay(attempt: self.attempt)
        self.attempt += 1
        self.eventLoop.scheduleTask(in: TimeAmount(delay)) { [weak self] in
            self?.assumeIsolated { connection in
                if case .connecting = connection.phase { connection.connect() }
            }
        }
    }

    /// Sends the waiting calls.
    ///
    /// - Parameter patience: the earliest that ``WaitingCall/patience`` of the calls may be.
    private func flush(patience: NIODeadline = .distantPast) {
        guard case .ready(let channel) = self.phase else {
            self.mailbox.postponeDrain()
            return
        }
        let (bytes, calls) = self.mailbox.drain()
        guard !calls.isEmpty else { return }
        for call in calls { self.pending.add(call, patience: patience) }
        channel.writeAndFlush(bytes, promise: nil)
        self.scheduleCheck()
    }

    private func receive(_ event: RedisChannelEvent, from generation: Int) {
        // A TLS channel with a silent peer takes seconds to close and may still deliver old
        // replies.
        guard generation == self.generation else { return }
        switch event {
        case .bytes(let buffer):
            self.lastArrival = .now()
            do throws(RedisError) {
                // Copies the reference: the callback changes the actor's state during the call.
                try self.reader?.read(buffer) { reply in self.deliver(reply) }
            } catch {
                self.disconnect(error)
            }
        case .closed(let reason): self.lost(RedisError(.connectionLost, reason))
        }
    }

    private func deliver(_ reply: RedisReply) {
        guard let settled = self.pending.receive(reply) else { return }
        switch settled {
        case .waiting: break
        case .answered(let count): self.mailbox.release(replies: count)
        case .login(let replies): self.loggedIn(replies)
        }
        guard case .error(let error) = reply, error.isOfReplica else { return }
        // The master was demoted. Its name may lead to the new one by now.
        self.checksRole = true
        self.disconnect(error)
    }

    private func loggedIn(_ replies: [RedisReply]) {
        guard case .loggingIn(let channel) = self.phase else { return }
        do throws(RedisError) {
            let identifier = try RedisConnector.identifier(replies, checksRole: self.checksRole)
            self.identifier.store(identifier, ordering: .releasing)
        } catch {
            self.disconnect(error)
            return
        }
        if self.lastFailure != nil {
            self.logger.info(
                "redis connected", metadata: ["redis.address": "\(self.server ?? self.configuration.address)"])
        }
        self.attempt = 0
        self.lastFailure = nil
        self.logins.add(1, ordering: .acquiringAndReleasing)
        self.phase = .ready(channel)
        self.readiness.store(true, ordering: .releasing)
        self.absence.store(false, ordering: .releasing)
        // A call that waited may soon time out, which does not mean that the connection is dead.
        self.flush(patience: self.configuration.deadline())
    }

    private func disconnect(_ error: RedisError) {
        guard let channel = self.phase.channel else { return }
        self.lost(error)
        channel.close(promise: nil)
    }

    private func lost(_ error: RedisError) {
        guard self.phase.channel != nil else { return }
        let error = RedisConnector.refusal(self.pending.loginReplies) ?? error
        // A server that restarts gives the same id to another connection.
        self.identifier.store(0, ordering: .releasing)
        self.readiness.store(false, ordering: .releasing)
        self.failPending(error)
        self.mailbox.postponeDrain()
        self.retry(error.message ?? error.code.rawValue)
        self.scheduleCheck()
    }

    private func failPending(_ error: RedisError) {
        self.mailbox.release(replies: self.pending.failAll(error))
        self.reader = nil
    }

    /// Makes sure that deadlines are checked in time, with one timer for all commands.
    ///
    /// Keeps a timer that fires early enough, and sets none without commands. Without a
    /// connection it checks every 50 ms, because the mailbox has no earliest deadline.
    private func scheduleCheck() {
        let soonest = NIODeadline.now() + Self.checkInterval
        let moment: NIODeadline
        switch self.phase {
        case .idle, .closed: return
        case .connecting, .loggingIn: moment = soonest
        case .ready:
            guard let earliest = self.pending.earliestDeadline else { return }
            moment = max(earliest, soonest)
        }
        guard moment < self.nextCheck else { return }
        self.deadlineTimer?.cancel()
        self.nextCheck = moment
        self.deadlineTimer = self.eventLoop.scheduleTask(deadline: moment) { [weak self] in
            guard let self else { return }
            self.assumeIsolated { $0.checkDeadlines() }
        }
    }

    private func checkDeadlines() {
        self.nextCheck = .distantFuture
        // It has fired. Cancelling it would search all timers of the event loop, which took two
        // thirds of a thread with 830 connections.
        self.deadlineTimer = nil
        defer { self.scheduleCheck() }
        let now = NIODeadline.now()
        let grace = TimeAmount(self.configuration.commandTimeout)
        if self.pending.failOverdue(now, arrival: self.lastArrival, grace: grace) {
            // Replies come in order, so everything behind the late one is late too: reconnect.
            self.disconnect(RedisError(.timeout, "no reply in time"))
        }
        self.failWaiting(until: now)
    }

    /// Fails the calls without a connection whose deadline is not after `now`.
    private func failWaiting(until now: NIODeadline) {
        let reason = self.lastFailure.map { "no connection: \($0)" } ?? "no connection yet"
        for call in self.mailbox.expire(now: now) { call.waiter.fail(RedisError(.unavailable, reason)) }
    }
}
