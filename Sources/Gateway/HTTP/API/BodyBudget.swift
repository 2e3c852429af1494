// Carillon · BodyBudget.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization

/// Bounds the memory that the bodies of users' calls take while they come in, over all connections.
package final class BodyBudget: Sendable {
    /// Bytes of a body that are free, so that small calls pass while others fill the budget.
    fileprivate static let free = 4 * 1024

    private let limit: Int
    private let used = Atomic(0)

    package init(limit: Int = 16 * 1024 * 1024) {
        self.limit = limit
    }

    /// Takes bytes; false, and nothing is taken, if fewer are left.
    fileprivate func take(_ bytes: Int) -> Bool {
        guard self.used.add(bytes, ordering: .relaxed).newValue <= self.limit else {
            self.giveBack(bytes)
            return false
        }
        return true
    }

    fileprivate func giveBack(_ bytes: Int) {
        self.used.subtract(bytes, ordering: .relaxed)
    }
}

/// Answers 503 to users whose bodies exceed the budget; services are not bounded.
package struct BodyBudgetMiddleware: RouterMiddleware {
    package typealias Context = APIContext

    private let budget: BodyBudget

    package init(budget: BodyBudget) {
        self.budget = budget
    }

    package func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let length = request.headers[.contentLength].flatMap { Int($0) }
        let isSmall = length.map { $0 <= BodyBudget.free } ?? (request.method == .get || request.method == .head)
        guard !isSmall, context.caller?.isService != true else { return try await next(request, context) }
        let share = BodyShare(of: self.budget)
        defer { share.end() }
        var request = request
        request.body = RequestBody(asyncSequence: CountedBody(base: request.body, share: share))
        return try await next(request, context)
    }
}

/// The part of the budget that one body takes.
private final class BodyShare: Sendable {
    private let budget: BodyBudget
    /// The body's bytes so far, and those of them that were taken from the budget.
    private let state = Mutex((length: 0, taken: 0))

    init(of budget: BodyBudget) {
        self.budget = budget
    }

    /// Counts bytes that came in.
    ///
    /// - Throws: ``Problem`` 503 if the budget has no room for them.
    func add(_ bytes: Int) throws {
        let fits = self.state.withLock { state in
            state.length += bytes
            let more = max(0, state.length - BodyBudget.free) - state.taken
            guard more > 0 else { return true }
            guard self.budget.take(more) else { return false }
            state.taken += more
            return true
        }
        guard fits else {
            throw Problem(.serviceUnavailable, "too many request bodies are in flight; retry in 1 s", retryAfter: 1)
        }
    }

    func end() {
        let taken = self.state.withLock { state in
            defer { state.taken = 0 }
            return state.taken
        }
        self.budget.giveBack(taken)
    }
}

/// A body whose bytes are counted as they are read.
private struct CountedBody: AsyncSequence, Sendable {
    struct AsyncIterator: AsyncIteratorProtocol {
        var base: RequestBody.AsyncIterator
        let share: BodyShare

        @concurrent mutating func next() async throws -> ByteBuffer? {
            guard let part = try await self.base.next() else { return nil }
            try self.share.add(part.readableBytes)
            return part
        }
    }

    let base: RequestBody
    let share: BodyShare

    func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(base: self.base.makeAsyncIterator(), share: self.share)
    }
}
