// Carillon · CommandMailbox.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule
import NIOCore
import Synchronization

/// The caller that waits for the replies of one call.
enum ReplyWaiter: Sendable {
    typealias One = UnsafeContinuation<Result<RedisReply, RedisError>, Never>
    typealias Many = UnsafeContinuation<Result<[RedisReply], RedisError>, Never>

    // Unsafe continuations are sound here: a waiter is either in the mailbox or among the pending
    // replies, never in both, and each resumes it exactly when it removes it.
    case one(One)
    case many(Many, count: Int)
    /// The connection's own login commands.
    case login(count: Int)
    /// The caller timed out; its replies are still to come and are dropped.
    case abandoned(count: Int)

    var replyCount: Int {
        switch self {
        case .one: 1
        case .many(_, let count), .login(let count), .abandoned(let count): count
        }
    }

    func fail(_ error: RedisError) {
        switch self {
        case .one(let continuation): continuation.resume(returning: .failure(error))
        case .many(let continuation, _): continuation.resume(returning: .failure(error))
        case .login, .abandoned: break
        }
    }
}

/// A call that waits for the next flush or for its replies.
struct WaitingCall: Sendable {
    var waiter: ReplyWaiter
    var deadline: NIODeadline
    /// When a missing reply means that the connection is dead; not before ``deadline``.
    var patience: NIODeadline
    let byteCount: Int
}

/// Collects commands from callers on any thread; the connection drains it once a loop turn.
///
/// Commands of concurrent callers share one buffer, and so one write.
final class CommandMailbox: Sendable {
    private struct State {
        var bytes = ByteBuffer()
        var calls: [WaitingCall] = []
        var waitingReplies = 0
        var isDrainScheduled = false
        var closed: RedisError?
    }

    private let state = Mutex(State())
    private let maximumCommands: Int
    private let maximumBytes: Int

    init(maximumCommands: Int, maximumBytes: Int) {
        self.maximumCommands = maximumCommands
        self.maximumBytes = maximumBytes
    }

    /// Adds a call unless the waiting calls have reached a limit.
    ///
    /// Below the limits it takes a batch of any size; otherwise a batch larger than a limit could
    /// never be sent.
    ///
    /// - Returns: whether the caller must schedule a drain; nil if the call was refused and its
    ///   waiter failed.
    func add(
        _ waiter: ReplyWaiter,
        deadline: NIODeadline,
        patience: NIODeadline,
        write: (inout ByteBuffer) -> Void
    ) -> Bool? {
        let refusal: RedisError
        switch self.state.withLock({ state -> Result<Bool, RedisError> in
            if let error = state.closed { return .failure(error) }
            guard
                state.waitingReplies < self.maximumCommands,
                state.bytes.readableBytes <= self.maximumBytes
            else { return .failure(RedisError(.overloaded, "too many commands wait")) }
            let before = state.bytes.writerIndex
            write(&state.bytes)
            state.waitingReplies += waiter.replyCount
            state.calls.append(
                WaitingCall(
                    waiter: waiter, deadline: deadline, patience: max(deadline, patience),
                    byteCount: state.bytes.writerIndex - before)
            )
            defer { state.isDrainScheduled = true }
            return .success(!state.isDrainScheduled)
        }) {
        case .success(let mustSchedule): return mustSchedule
        case .failure(let error): refusal = error
        }
        waiter.fail(refusal)
        return nil
    }

    /// Removes and returns everything that waits.
    func drain() -> (bytes: ByteBuffer, calls: [WaitingCall]) {
        self.state.withLock { state in
            defer {
                state.bytes = ByteBuffer()
                state.calls = []
                state.isDrainScheduled = false
            }
            return (state.bytes, state.calls)
        }
    }

    /// Records that a drain found no connection; the next login drains again.
    func postponeDrain() {
        self.state.withLock { $0.isDrainScheduled = true }
    }

    /// Frees the room of replies that arrived or were given up.
    func release(replies: Int) {
        self.state.withLock { $0.waitingReplies -= replies }
    }

    /// Removes and returns the calls whose deadline passed while they waited for a connection.
    func expire(now: NIODeadline) -> [WaitingCall] {
        self.state.withLock { state in
            guard state.calls.contains(where: { $0.deadline <= now }) else { return [] }
            var expired: [WaitingCall] = []
            var kept: [WaitingCall] = []
            var bytes = ByteBuffer()
            for call in state.calls {
                guard var slice = state.bytes.readSlice(length: call.byteCount) else { continue }
                if call.deadline <= now {
                    expired.append(call)
                    state.waitingReplies -= call.waiter.replyCount
                } else {
                    kept.append(call)
                    bytes.writeBuffer(&slice)
                }
            }
            state.calls = kept
            state.bytes = bytes
            return expired
        }
    }

    /// Refuses all later calls and returns the waiting ones.
    func close(_ error: RedisError) -> [WaitingCall] {
        self.state.withLock { state in
            state.closed = error
            defer {
                state.calls = []
                state.bytes = ByteBuffer()
            }
            return state.calls
        }
    }
}

/// The calls that await replies, in the order they were written.
struct PendingReplies {
    /// The effect of one reply.
    enum Settled {
        case waiting
        /// A call got all its replies; the value is their number.
        case answered(Int)
        /// The login ended, with the replies to its commands.
        case login([RedisReply])
    }

    private var calls: Deque<WaitingCall> = []
    private var gathered: [RedisReply] = []
    /// A lower bound of all deadlines; it may lag behind, which only costs a check.
    private var earliest = NIODeadline.distantFuture
    /// Whether the oldest call, which timed out behind others, got its grace period.
    private var isFirstInGrace = false

    /// The replies so far to the oldest call, if it is a login.
    var loginReplies: [RedisReply] {
        guard case .login = self.calls.first?.waiter else { return [] }
        return self.gathered
    }

    /// A lower bound of all deadlines; nil if no call is pending.
    var earliestDeadline: NIODeadline? { self.calls.isEmpty ? nil : self.earliest }

    /// Adds a call behind the others.
    ///
    /// - Parameter patience: the earliest that ``WaitingCall/patience`` of the call may be.
    mutating func add(_ call: WaitingCall, patience: NIODeadline = .distantPast) {
        var call = call
        call.patience = max(call.patience, patience)
        if self.calls.isEmpty || call.deadline < self.earliest { self.earliest = call.deadline }
        self.calls.append(call)
    }

    /// Assigns the next reply to the oldest call; returns nil if no call was pending.
    mutating func receive(_ reply: RedisReply) -> Settled? {
        guard let call = self.calls.first else { return nil }
        switch call.waiter {
        case .one(let continuation):
            self.calls.removeFirst()
            continuation.resume(returning: .success(reply))
            return .answered(1)
        case .many(let continuation, let count):
            guard let replies = self.gather(reply, count: count) else { return .waiting }
            continuation.resume(returning: .success(replies))
            return .answered(count)
        case .login(let count):
            guard let replies = self.gather(reply, count: count) else { return .waiting }
            return .login(replies)
        case .abandoned(let count):
            guard self.gather(reply, count: count) != nil else { return .waiting }
            self.isFirstInGrace = false
            return .answered(count)
        }
    }

    private mutating func gather(_ reply: RedisReply, count: Int) -> [RedisReply]? {
        if self.gathered.isEmpty { self.gathered.reserveCapacity(count) }
        self.gathered.append(reply)
        guard self.gathered.count == count else { return nil }
        self.calls.removeFirst()
        defer { self.gathered = [] }
        return self.gathered
    }

    /// Fails the calls whose deadline has passed.
    ///
    /// A call behind others times out alone, and stays in the queue until its replies come. They
    /// cannot come before those of the calls in front, so the call gets `grace` once it is the
    /// oldest. A call with less time than usual, that waited for the connection, or whose reply
    /// still arrives, also times out alone.
    ///
    /// - Parameters:
    ///   - arrival: when the last bytes arrived.
    ///   - grace: how long the connection may be silent while a call is overdue.
    /// - Returns: whether the oldest call is overdue, and with it the connection.
    mutating func failOverdue(_ now: NIODeadline, arrival: NIODeadline, grace: TimeAmount) -> Bool {
        guard self.earliest <= now, let first = self.calls.first else { return false }
        if case .abandoned = first.waiter {
            if !self.isFirstInGrace {
                self.isFirstInGrace = true
                self.calls[0].deadline = now + grace
            }
        } else if first.deadline <= now, first.patience > now {
            self.abandon(at: 0)
            self.isFirstInGrace = true
            self.calls[0].deadline = first.patience
        }
        if self.calls[0].deadline <= now {
            guard arrival + grace > now else { return true }
            if case .login = self.calls[0].waiter { return true }
            self.abandon(at: 0)
            self.isFirstInGrace = true
            self.calls[0].deadline = arrival + grace
        }
        self.earliest = self.calls[0].deadline
        for index in self.calls.indices.dropFirst() {
            let call = self.calls[index]
            if case .abandoned = call.waiter {
                // It gets its grace period when it becomes the oldest.
                self.earliest = min(self.earliest, now)
            } else if call.deadline <= now {
                self.abandon(at: index)
                self.earliest = min(self.earliest, now)
            } else {
                self.earliest = min(self.earliest, call.deadline)
            }
        }
        return false
    }

    private mutating func abandon(at index: Int) {
        let waiter = self.calls[index].waiter
        waiter.fail(RedisError(.timeout, "no reply in time"))
        self.calls[index].waiter = .abandoned(count: waiter.replyCount)
    }

    /// Fails every call and returns the number of replies that were pending, logins excluded.
    mutating func failAll(_ error: RedisError) -> Int {
        var replies = 0
        for call in self.calls {
            call.waiter.fail(error)
            if case .login = call.waiter { continue }
            replies += call.waiter.replyCount
        }
        self.calls.removeAll()
        self.gathered = []
        self.earliest = .distantFuture
        self.isFirstInGrace = false
        return replies
    }
}
