// Carillon · BodyBudget.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore
import Sockets
import Synchronization

/// The memory for request bodies of users over all connections, and the part that each user holds.
package final class BodyBudget: Sendable {
    /// The memory of all users.
    package let all: Budget
    private let ofUser: Int
    private let users = Mutex<[ExactText: (budget: Budget, bodies: Int)]>([:])

    /// - Parameter limit: the bytes of all users; one user may hold an eighth of them.
    init(limit: Int) {
        self.all = Budget(limit: limit)
        self.ofUser = limit / 8
    }

    /// Counts a body of a user, and returns the user's budget.
    fileprivate func begin(_ user: ExactText) -> Budget {
        self.users.withLock { users in
            var part = users[user] ?? (budget: Budget(limit: self.ofUser), bodies: 0)
            part.bodies += 1
            users[user] = part
            return part.budget
        }
    }

    /// Forgets the user after the last body.
    fileprivate func end(_ user: ExactText) {
        self.users.withLock { users in
            users[user]?.bodies -= 1
            if users[user]?.bodies == 0 { users[user] = nil }
        }
    }
}

/// Limits the memory for request bodies of users, alone and together; services have no limit.
///
/// Answers 503 to a body that exceeds the budget.
struct BodyBudgetMiddleware: RouterMiddleware {
    typealias Context = APIContext

    private let budget: BodyBudget

    init(budget: BodyBudget) {
        self.budget = budget
    }

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let length = request.headers[.contentLength].flatMap { Int($0) }
        let isSmall = length.map { $0 <= BudgetShare.uncounted } ?? (request.method == .get || request.method == .head)
        guard !isSmall, let caller = context.caller, !caller.isService else {
            return try await next(request, context)
        }
        let share = BodyShare(of: self.budget, user: ExactText(caller.user))
        defer { share.end() }
        var request = request
        request.body = RequestBody(asyncSequence: CountedBody(base: request.body, share: share))
        return try await next(request, context)
    }
}

/// One body's share of the budget.
private final class BodyShare: Sendable {
    private let budget: BodyBudget
    private let user: ExactText
    private let state: Mutex<(length: Int, own: BudgetShare, all: BudgetShare)>

    init(of budget: BodyBudget, user: ExactText) {
        self.budget = budget
        self.user = user
        let own = budget.begin(user)
        self.state = Mutex((length: 0, own: BudgetShare(of: own), all: BudgetShare(of: budget.all)))
    }

    /// Counts received bytes.
    ///
    /// - Throws: ``Problem`` 503 if they exceed the budget.
    func add(_ bytes: Int) throws {
        let fits = self.state.withLock { state in
            state.length += bytes
            guard state.own.hold(state.length) else { return false }
            return state.all.hold(state.length)
        }
        guard fits else {
            throw Problem(.serviceUnavailable, "too many bodies are coming in; try again later", retryAfter: 1)
        }
    }

    func end() {
        self.state.withLock { state in
            state.own.clear()
            state.all.clear()
        }
        self.budget.end(self.user)
    }
}

/// A body that counts bytes as they are read.
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
