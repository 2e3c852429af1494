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
    /// No call's deadline is earlier; that of one that was answered since may be, which costs a look.
    private var earliest = NIODeadline.distantFuture
    /// Whether the oldest call, given up behind others, was given its own time.
    private var isFirstInGrace = false

    /// Notes that `call` was written.
    mutating func add(_ call: WaitingCall) {
        self.calls.append(call)
        if call.deadline < self.earliest { self.earliest = call.deadline }
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
        case .nobody(let count):
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

    /// Gives up what is overdue.
    ///
    /// Whoever waits behind another is told that there is no reply in time, and its place stays until the reply comes. It
    /// cannot come before those of the calls in front, so that a call given up there has `grace` from when it is the oldest.
    ///
    /// - Returns: whether the oldest call is overdue, and with it the connection.
    mutating func giveUp(_ now: NIODeadline, grace: TimeAmount) -> Bool {
        guard self.earliest <= now, let first = self.calls.first else { return false }
        if case .nobody = first.waiter, !self.isFirstInGrace {
            self.isFirstInGrace = true
            self.calls[0].deadline = now + grace
        }
        if self.calls[0].deadline <= now { return true }
        self.earliest = self.calls[0].deadline
        for index in self.calls.indices.dropFirst() {
            let call = self.calls[index]
            if case .nobody = call.waiter {
                // Once it is the oldest it needs its grace.
                self.earliest = min(self.earliest, now)
            } else if call.deadline <= now {
                call.waiter.fail(RedisError(.timeout, "no reply in time"))
                self.calls[index].waiter = .nobody(count: call.waiter.replyCount)
                self.earliest = min(self.earliest, now)
            } else {
                self.earliest = min(self.earliest, call.deadline)
            }
        }
        return false
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
        self.earliest = .distantFuture
        self.isFirstInGrace = false
        return replies
    }
}
