// Carillon · CallRateMiddleware.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird

/// Answers 429 to users who call too often; services are not bounded.
package struct CallRateMiddleware: RouterMiddleware {
    package typealias Context = APIContext

    private let rate: UserRate?

    package init(rate: UserRate?) {
        self.rate = rate
    }

    package func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        if let rate, let caller = context.caller, !caller.isService, let delay = rate.delay(caller.user) {
            let seconds = max(1, Int(delay.components.seconds) + (delay.components.attoseconds > 0 ? 1 : 0))
            throw Problem(.tooManyRequests, "too many calls; wait as long as Retry-After says", retryAfter: seconds)
        }
        return try await next(request, context)
    }
}
