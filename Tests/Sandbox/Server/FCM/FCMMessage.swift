// Carillon · FCMMessage.swift
// SPDX-License-Identifier: Apache-2.0

/// What the endpoint needs of a message that passed every rule.
struct FCMMessage {
    /// The token, the installation id, the topic or the condition.
    let target: String
    /// Whether the target is a topic or a condition.
    let isBroadcast: Bool
    /// `validate_only`: checked, but neither sent nor kept.
    let isDryRun: Bool

    private static let targets = ["token", "fid", "topic", "condition"]

    /// Checks the body of `messages:send` as FCM does; throws its answer.
    init(_ body: JSONValue) throws(FCMRefusal) {
        do throws(FCMField.Mismatch) {
            try FCMField.message(.request).check(body)
        } catch {
            throw .unreadable(error.description, field: error.path.isEmpty ? nil : error.path)
        }
        guard let message = body.member("message") else {
            throw .invalid("The message is not set.", field: "message")
        }
        if case .bool(true) = body.member("validate_only", or: "validateOnly") {
            self.isDryRun = true
        } else {
            self.isDryRun = false
        }
        let named = Self.targets.compactMap { name in message.member(name)?.text.map { (name, $0) } }
        guard let (kind, target) = named.first else {
            throw .invalid("Recipient of the message is not set.", field: "message.token")
        }
        if named.count > 1 {
            let description =
                "Invalid value at 'message' (oneof), oneof field 'target' is already set. Cannot set '\(named[1].0)'"
            throw .unreadable(description, field: "message")
        }
        self.target = target
        self.isBroadcast = kind == "topic" || kind == "condition"
        try Self.check(target, kind)
        try FCMMessageRules.check(message, limit: self.isBroadcast ? 2048 : 4096)
    }

    private static func check(_ target: String, _ kind: String) throws(FCMRefusal) {
        switch kind {
        case "topic":
            guard FCMText.isLabel(target) else { throw .invalid("Invalid topic name", field: "message.topic") }
        case "condition":
            guard FCMCondition.isValid(target) else {
                throw .invalid("Invalid condition expression provided.", field: "message.condition")
            }
        default:
            guard FCMText.isToken(target) else { throw .malformedToken }
        }
    }
}
