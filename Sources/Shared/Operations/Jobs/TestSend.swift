// Carillon · TestSend.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// A test message to one of a user's devices, or to the user's e-mail address.
package struct TestSend: Sendable {
    /// The target and what the provider answered.
    package struct Reply: Sendable {
        /// Nil for e-mail.
        package let device: Device?
        /// The answer's members; empty if the dispatcher's answer is no object.
        package let answer: [JSONMember]

        package var provider: Provider { self.device?.provider ?? .email }
    }

    private let database: Database
    private let live: Live

    package init(_ database: Database, _ live: Live) {
        self.database = database
        self.live = live
    }

    /// Has a dispatcher send to a target, and waits for the provider's answer.
    ///
    /// - Parameters:
    ///   - device: the id of an active device; nil for the most recently used.
    ///   - isMail: whether to send to the e-mail address instead.
    ///   - texts: the names and values of the message's texts; nil values are left out.
    /// - Returns: nil if the user has no such target.
    /// - Throws: ``TestSends/Failure``, or an error of Redis or PostgreSQL.
    package func ask(
        user: String,
        device: String?,
        isMail: Bool,
        texts: [(String, String?)],
        data: JSONValue? = nil
    ) async throws -> Reply? {
        var request = [JSONMember("user", .string(user))]
        var target: Device?
        if isMail {
            guard try await self.database.preferences.settings(user: user).email != nil else { return nil }
            request.append(JSONMember("channel", .string("email")))
        } else {
            let id = device.flatMap { DeviceID($0) }
            let devices = try await self.database.devices.list(user: user)
            target = devices.first { $0.isActive && (device == nil || $0.id == id) }
            guard let target else { return nil }
            request.append(JSONMember("device", .string(target.id.description)))
        }
        for case (let name, .some(let text)) in texts { request.append(JSONMember(name, .string(text))) }
        if let data { request.append(JSONMember("data", data)) }
        let answer = try await self.live.testSends.send(request)
        // It quotes the provider, which may use any number of combining marks.
        return Reply(device: target, answer: (try? JSONParser.parse(stored: answer))?.object ?? [])
    }
}
