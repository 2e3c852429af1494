// Carillon · Eventually.swift
// SPDX-License-Identifier: Apache-2.0

/// How often a condition is looked at.
private let pollInterval = Duration.milliseconds(10)

/// Waits until `condition` holds; what it throws ends the wait.
///
/// - Parameters:
///   - what: the condition in words, for the failure.
///   - limit: how long to wait.
/// - Throws: ``FixtureError`` that names `what` if it did not come true in time.
package func eventually(
    _ what: String,
    within limit: Duration = .seconds(60),
    file: StaticString = #fileID,
    line: UInt = #line,
    _ condition: () async throws -> Bool
) async throws {
    _ = try await eventualValue(what, within: limit, file: file, line: line) {
        try await condition() ? () : nil
    }
}

/// Waits until `probe` gives a value; what it throws ends the wait.
///
/// - Parameters:
///   - what: the value in words, for the failure.
///   - limit: how long to wait.
/// - Throws: ``FixtureError`` that names `what` if there was none in time.
package func eventualValue<Value>(
    _ what: String,
    within limit: Duration = .seconds(60),
    file: StaticString = #fileID,
    line: UInt = #line,
    _ probe: () async throws -> Value?
) async throws -> Value {
    let clock = ContinuousClock()
    let deadline = clock.now + limit
    while true {
        if let value = try await probe() { return value }
        guard clock.now < deadline else {
            throw FixtureError("waited \(limit) in vain until \(what)", file: file, line: line)
        }
        try await clock.sleep(for: pollInterval)
    }
}
