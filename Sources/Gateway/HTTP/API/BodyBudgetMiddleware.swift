// Carillon · BodyBudgetMiddleware.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import NIOCore
import Sockets
import Synchronization

/// Bounds the memory that the bodies of users' calls take while they come in, over all connections.
///
/// Answers 503 to a body that exceeds the budget; services are not bounded.
package struct BodyBudgetMiddleware: RouterMiddleware {
    package typealias Context = APIContext

    private let budget: Tally

    package init(budget: Tally) {
        self.budget = budget
    }

    package func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let length = request.headers[.contentLength].flatMap { Int($0) }
        let isSmall = length.map { $0 <= TallyShare.uncounted } ?? (request.method == .get || request.method == .head)
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
    private let state: Mutex<(length: Int, share: TallyShare)>

    init(of budget: Tally) {
        self.state = Mutex((length: 0, share: TallyShare(of: budget)))
    }

    /// Counts bytes that came in.
    ///
    /// - Throws: ``Problem`` 503 if the budget has no room for them.
    func add(_ bytes: Int) throws {
        let fits = self.state.withLock { state in
            state.length += bytes
            return state.share.hold(state.length)
        }
        guard fits else {
            throw Problem(.serviceUnavailable, "too many bodies are coming in; try again later", retryAfter: 1)
        }
    }

    func end() {
        self.state.withLock { state in _ = state.share.hold(0) }
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
