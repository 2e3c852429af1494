// Carillon · ProviderProfile.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Sandbox
import Testing

/// What the conformance suite has to know of a provider: how an app uses the sandbox's, and which tokens show its answers.
///
/// A new provider needs one, and passes the suite when its table of answers is true.
struct ProviderProfile: Sendable, CustomTestStringConvertible {
    /// How an answer is brought about.
    struct Row: Sendable {
        /// How the token begins.
        var marker = ""
        /// In place of settings that are right.
        var settings: @Sendable (inout [String: String], ProviderSandbox) -> Void = { _, _ in }
        /// Whether the sandbox has to be another one than usual.
        var sandbox: (@Sendable (inout SandboxConfiguration) -> Void)?
    }

    /// What is answered where more than the token is other than usual.
    struct Circumstance: Sendable {
        let row: Row
        let answer: ProviderAnswer

        init(_ row: Row, _ answer: ProviderAnswer) {
            self.row = row
            self.answer = answer
        }
    }

    static let usualNonsense = ["html-", "half-", "empty-", "echo-"]

    let provider: Provider
    let settings: @Sendable (ProviderSandbox) -> [String: String]
    /// A token that begins with a marker and is different each time.
    let token: @Sendable (_ marker: String, ProviderSandbox) -> String
    /// How each row of its table of answers is reached.
    let rows: [String: Row]
    /// Answers that the table's rows do not tell: what the same word means otherwise, and what has no row.
    var answers: [String: ProviderAnswer] = [:]
    /// The same where settings or the sandbox are other than usual, by what is.
    var circumstances: [String: Circumstance] = [:]
    /// Markers of answers that say how long to wait.
    var delayed: [String] = []
    /// Markers of what is no answer at all.
    var nonsense = Self.usualNonsense
    /// Markers of successes that count by their status, whatever their bodies are.
    var bareSuccesses: [String] = []
    var silent = "silent-"
    var cut = "cut-"
    /// A connection that ends before the message was given; nil where it is given at once.
    var cutEarly: String?
    /// Ends the connection, the first time; nil where there is no such thing.
    var goAway: String? = "goaway-once-"
    /// A stream that is refused the first time; nil where there is no such thing.
    var refused: String? = "refused-once-"
    /// A stream that is reset; nil where there is no such thing.
    var reset: String? = "reset-"
    var needsHTTP2 = false
    var takesAway = true
    /// Takes secrets out of its usual settings that may be in files instead, of which any line will do.
    var withoutSecrets: (@Sendable (inout [String: String]) -> Void)?
    /// Contents of its files that are of the wrong kind.
    var wrongFiles: [String] = []
    /// The text that a device shows.
    let body: @Sendable (JSONValue) -> String?

    var kind: any ProviderKind.Type {
        get throws { try #require(ProviderKinds.kind(of: self.provider)) }
    }

    var testDescription: String { self.provider.rawValue }

    static let all = [Self.fcm, .apns, .webpush, .email, .webhook]
}
