// Carillon · OwedReplies.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule
import NIOCore

/// What one connection owes its callers: calls in the order they were written, replies in the order they come.
struct OwedReplies {
    /// What a reply did.
    enum Settled {
        case waiting
        /// A call was answered with this many replies.
        case answered(Int)
        /// The login is over, with its first error if any.
        case login(RedisError?)
    }

    private var calls: Deque<WaitingCall> = []
    private var gathered: [RedisReply] = []

    /// Notes that `call` was written.
    mutating func add(_ call: WaitingCall) {
        self.calls.append(call)
    }

    /// Takes the next reply; nil if nothing was owed.
    mutating func take(_ reply: RedisReply) -> Settled? {
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
            for case .error(let error) in replies { return .login(error) }
            return .login(nil)
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

    /// Whether the oldest call should have been answered by now.
    func isOverdue(_ now: NIODeadline) -> Bool {
        // Later calls may have earlier deadlines, but cannot be answered before the first.
        self.calls.first.map { $0.deadline <= now } ?? false
    }

    /// Fails all, and tells how many replies were owed.
    mutating func failAll(_ error: RedisError) -> Int {
        var replies = 0
        for call in self.calls {
            call.waiter.fail(error)
            if case .login = call.waiter { continue }
            replies += call.waiter.replyCount
        }
        self.calls.removeAll()
        self.gathered = []
        return replies
    }
}
