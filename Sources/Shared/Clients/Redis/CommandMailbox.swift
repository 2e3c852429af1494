// Carillon · CommandMailbox.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Synchronization

/// Who waits for the replies of one call.
enum ReplyWaiter: Sendable {
    typealias One = UnsafeContinuation<Result<RedisReply, RedisError>, Never>
    typealias Many = UnsafeContinuation<Result<[RedisReply], RedisError>, Never>

    // Unsafe continuations are sound here: a waiter is in the mailbox or in the owed replies, never in both, and each
    // resumes it when it lets go of it.
    case one(One)
    case many(Many, count: Int)
    /// The connection's own login commands.
    case login(count: Int)
    /// Whoever waited was told that there is no reply in time; the replies still have their place.
    case nobody(count: Int)

    var replyCount: Int {
        switch self {
        case .one: 1
        case .many(_, let count), .login(let count), .nobody(let count): count
        }
    }

    func fail(_ error: RedisError) {
        switch self {
        case .one(let continuation): continuation.resume(returning: .failure(error))
        case .many(let continuation, _): continuation.resume(returning: .failure(error))
        case .login, .nobody: break
        }
    }
}

/// A call whose bytes wait for the next flush, or whose replies are owed.
struct WaitingCall: Sendable {
    var waiter: ReplyWaiter
    var deadline: NIODeadline
    let byteCount: Int
}

/// Where callers on any thread put their commands; the connection empties it once per loop turn.
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

    /// Adds a call.
    ///
    /// - Returns: whether the caller must schedule a drain; nil if the call was refused, in which case its waiter is answered.
    func add(
        _ waiter: ReplyWaiter,
        deadline: NIODeadline,
        write: (inout ByteBuffer) -> Void
    ) -> Bool? {
        let refusal: RedisError
        switch self.state.withLock({ state -> Result<Bool, RedisError> in
            if let error = state.closed { return .failure(error) }
            guard
                state.waitingReplies + waiter.replyCount <= self.maximumCommands,
                state.bytes.readableBytes <= self.maximumBytes
            else { return .failure(RedisError(.overloaded, "too many commands wait")) }
            let before = state.bytes.writerIndex
            write(&state.bytes)
            state.waitingReplies += waiter.replyCount
            state.calls.append(
                WaitingCall(waiter: waiter, deadline: deadline, byteCount: state.bytes.writerIndex - before)
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

    /// Takes all that waits.
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

    /// Says that a drain found no connection: the next one is scheduled by whoever connects.
    func postponeDrain() {
        self.state.withLock { $0.isDrainScheduled = true }
    }

    /// Gives back room for replies that came or were given up.
    func release(replies: Int) {
        self.state.withLock { $0.waitingReplies -= replies }
    }

    /// Takes out the calls whose deadline has passed while they waited for a connection.
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

    /// Refuses every later call and takes out those that wait.
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
