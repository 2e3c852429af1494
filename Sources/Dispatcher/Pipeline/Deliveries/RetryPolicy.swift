// Carillon · RetryPolicy.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The backoff of a lane's deliveries.
struct RetryPolicy: Sendable, Equatable {
    let backoff: Backoff
    /// The number of tries in all.
    let tries: Int
    /// Whether ``tries`` applies only after a day, so that until then only the expiry ends a
    /// delivery.
    var endsByExpiry = false

    /// How long a policy with ``endsByExpiry`` allows any number of tries.
    ///
    /// A time to live of weeks is for devices that are offline, not for a provider that refuses.
    private static let uncounted: Duration = .seconds(86_400)

    static func of(_ lane: Lane, _ provider: Provider) -> RetryPolicy {
        if provider == .email { return self.ofMail(lane) }
        return switch lane {
        // Until it expires, for up to a day, however long the provider is down.
        case .critical:
            RetryPolicy(backoff: Backoff(base: .seconds(1), limit: .seconds(15)), tries: 40, endsByExpiry: true)
        case .normal: RetryPolicy(backoff: Backoff(base: .seconds(15), limit: .seconds(16 * 60)), tries: 8)
        case .bulk: RetryPolicy(backoff: Backoff(base: .seconds(60), limit: .seconds(2 * 3_600)), tries: 16)
        }
    }

    /// Mail needs longer delays: greylisting lasts minutes, and a full mailbox takes hours to
    /// empty.
    private static func ofMail(_ lane: Lane) -> RetryPolicy {
        switch lane {
        case .critical:
            RetryPolicy(backoff: Backoff(base: .seconds(60), limit: .seconds(15 * 60)), tries: 40, endsByExpiry: true)
        case .normal: RetryPolicy(backoff: Backoff(base: .seconds(2 * 60), limit: .seconds(60 * 60)), tries: 24)
        case .bulk: RetryPolicy(backoff: Backoff(base: .seconds(5 * 60), limit: .seconds(2 * 3_600)), tries: 16)
        }
    }

    /// Returns the least delay of a device's delivery while our configuration is rejected for it.
    ///
    /// - Parameter tried: the number of tries, including the failed one.
    static func configurationDelay(tried: Int) -> Duration {
        min(.seconds(30 * 60), Duration.seconds(60) * (1 << min(max(tried - 1, 0), 10)))
    }

    /// Returns the moment of the next try; nil if the tries are used up.
    ///
    /// A try that would come after the expiry is due at the expiry, so that the gate ends the
    /// delivery; while its breaker is open, up to ten minutes later. Jitter takes at most half of
    /// the time until expiry, so that a random delay does not end the tries early. With less time
    /// left than the backoff's base, jitter may end them, which keeps the last tries few.
    ///
    /// - Parameters:
    ///   - tried: the number of tries, including the failed one.
    ///   - since: when the delivery was first appended.
    ///   - minimum: the delay that the provider asked for.
    func next(
        tried: Int,
        since: Timestamp?,
        minimum: Duration?,
        now: Timestamp,
        expiresAt: Timestamp?,
        using generator: inout some RandomNumberGenerator
    ) -> Timestamp? {
        let isOld = since.map { now - $0 >= Self.uncounted } ?? false
        let isCounted = !self.endsByExpiry || isOld
        guard !isCounted || tried < self.tries else { return nil }
        let jittered = self.backoff.delay(attempt: tried - 1, using: &generator)
        // The provider's delay is a floor; jitter above it keeps clients apart.
        let floor = minimum ?? .zero
        let extra = max(jittered - floor, jittered / 10)
        guard let expiresAt else { return now + floor + extra }
        let room = expiresAt - now - floor
        return min(now + floor + (room < self.backoff.base ? extra : min(extra, room / 2)), expiresAt)
    }
}
