// Carillon · Eventually.swift
// SPDX-License-Identifier: Apache-2.0

private let pollInterval = Duration.milliseconds(10)

/// The longest wait for anything in a test.
///
/// It only ends a test that fails, so it has room for a machine many times slower than usual.
package let longestWait: Duration = .seconds(240)

/// The time limit of a fixture's own calls to its servers, which a busy machine may delay.
///
/// Half of the longest wait, so that a call ends in time behind one that waits for a lock.
package let fixturePatience: Duration = longestWait / 2

/// Waits until `condition` holds; an error that it throws ends the wait.
///
/// - Parameters:
///   - what: the condition in words, for the error.
///   - limit: the longest wait.
/// - Throws: ``FixtureError`` with `what` when the time is up.
package func eventually(
    _ what: String,
    within limit: Duration = longestWait,
    file: StaticString = #fileID,
    line: UInt = #line,
    _ condition: () async throws -> Bool
) async throws {
    _ = try await eventualValue(what, within: limit, file: file, line: line) {
        try await condition() ? () : nil
    }
}

/// Waits until `probe` returns a value; an error that it throws ends the wait.
///
/// - Parameters:
///   - what: the value in words, for the error.
///   - limit: the longest wait.
/// - Throws: ``FixtureError`` with `what` when the time is up.
package func eventualValue<Value>(
    _ what: String,
    within limit: Duration = longestWait,
    file: StaticString = #fileID,
    line: UInt = #line,
    _ probe: () async throws -> Value?
) async throws -> Value {
    let clock = ContinuousClock()
    let deadline = clock.now + limit
    while true {
        if let value = try await probe() { return value }
        guard clock.now < deadline else {
            throw FixtureError("timed out after \(limit): \(what)", file: file, line: line)
        }
        try await clock.sleep(for: pollInterval)
    }
}

/// Waits until `list` is empty; an error that it throws ends the wait.
///
/// - Parameters:
///   - what: the condition in words, for the error.
///   - list: names what is left, for the error.
/// - Throws: ``FixtureError`` with `what` and the last list when the time is up.
package func eventuallyEmpty(
    _ what: String,
    file: StaticString = #fileID,
    line: UInt = #line,
    _ list: () async throws -> [String]
) async throws {
    let clock = ContinuousClock()
    let deadline = clock.now + longestWait
    while true {
        let left = try await list()
        if left.isEmpty { return }
        guard clock.now < deadline else {
            throw FixtureError(
                "timed out after \(longestWait): \(what); left: \(left.joined(separator: ", "))", file: file, line: line
            )
        }
        try await clock.sleep(for: pollInterval)
    }
}

/// Calls `probe` with time limits of 2, 4, … 128 s until it returns a value.
///
/// For a step that must be reached within a limit, which a busy machine may miss.
///
/// - Parameter what: the step in words, for the error.
/// - Throws: ``FixtureError`` with `what` if no limit was long enough.
package func valueInTime<Value>(
    _ what: String,
    file: StaticString = #fileID,
    line: UInt = #line,
    _ probe: (Duration) async throws -> Value?
) async throws -> Value {
    for exponent in 1...7 {
        if let value = try await probe(.seconds(1 << exponent)) { return value }
    }
    throw FixtureError("no time limit was long enough: \(what)", file: file, line: line)
}

/// Runs `body`, then `cleanUp`, also if `body` throws.
///
/// - Throws: the error of `body`, or else that of `cleanUp`.
package func withCleanUp<Value>(
    _ cleanUp: () async throws -> Void,
    _ body: () async throws -> Value
) async throws -> Value {
    let value: Value
    do {
        value = try await body()
    } catch {
        try? await cleanUp()
        throw error
    }
    try await cleanUp()
    return value
}

/// Holds tasks back until it is opened, once.
package actor Gate {
    private var isOpen = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    package init() {}

    /// Lets all current and later waiters through.
    package func open() {
        self.isOpen = true
        for continuation in self.waiting { continuation.resume() }
        self.waiting = []
    }

    /// Returns when the gate is open; ignores cancellation.
    package func wait() async {
        guard !self.isOpen else { return }
        await withCheckedContinuation { self.waiting.append($0) }
    }
}

/// A failure of the test's environment.
package struct FixtureError: Error, Sendable, CustomStringConvertible {
    package let message: String
    /// File and line of the caller.
    package let place: String

    package init(_ message: String, file: StaticString = #fileID, line: UInt = #line) {
        self.message = message
        self.place = "\(file):\(line)"
    }

    package var description: String { "\(self.message) (\(self.place))" }
}
