// Carillon · SandboxControl.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// A client for the control calls of the provider sandbox.
final class SandboxControl: Sendable {
    /// A push that the sandbox accepted.
    struct Push {
        let token: String
        let notification: String
        /// The notification's data; FCM carries only strings.
        let data: [String: String]
    }

    private let client: TransferClient
    private let url: String

    /// Connects to the sandbox that `deploy/up` started.
    convenience init() throws {
        try self.init(
            url: try Environment.require("SANDBOX_URL"), authority: ProcessInfo.processInfo.environment["PROVIDER_CA"])
    }

    /// - Parameter authority: the file with the trusted certificate.
    init(url: String, authority: String?) throws {
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        configuration.caFile = authority
        self.client = try TransferClient(configuration: configuration, logger: Environment.logger)
        self.url = url
    }

    /// Waits until FCM has accepted `count` pushes.
    func await(_ count: Int) async throws {
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            let seen = try await self.count("fcm").accepted
            if seen >= count { return }
            guard ContinuousClock.now < deadline else {
                throw ValidationError("\(count - seen) pushes are missing")
            }
            // Poll, because the sandbox does not signal arrivals.
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    /// Returns the number of pushes that a provider accepted, and the next sequence.
    func count(_ provider: String) async throws -> (accepted: Int, next: Int) {
        let answer = try JSONSerialization.jsonObject(with: try await self.get("/received/count")) as? [String: Any]
        guard let answer, let next = answer["next"] as? Int,
            let accepted = (answer["accepted"] as? [String: Int])?[provider]
        else { throw ValidationError("the sandbox returned no counts") }
        return (accepted, next)
    }

    /// Returns a browser's subscription at the sandbox.
    ///
    /// - Parameter key: the VAPID public key, in base64url.
    func subscription(_ id: String, key: String) async throws -> String {
        String(decoding: try await self.get("/subscriptions?id=\(id)&key=\(key)"), as: UTF8.self)
    }

    /// Returns the pushes from sequence `since` on, and the sequence to continue with.
    func pushes(since: Int) async throws -> (pushes: [Push], next: Int) {
        let answer = try JSONSerialization.jsonObject(
            with: try await self.get("/received?since=\(since)&limit=1000")
        )
        guard let items = answer as? [[String: Any]] else { throw ValidationError("the sandbox returned no list") }
        var next = since
        var pushes: [Push] = []
        for item in items {
            guard let sequence = item["sequence"] as? Int, let token = item["token"] as? String else { continue }
            next = max(next, sequence + 1)
            let message = (item["payload"] as? [String: Any])?["message"] as? [String: Any]
            guard let data = message?["data"] as? [String: String], let id = data["notification_id"] else { continue }
            pushes.append(Push(token: token, notification: id, data: data))
        }
        return (pushes, next)
    }

    private func get(_ path: String) async throws -> Data {
        let request = TransferRequest(.get, url: self.url + path, maximumResponseBytes: 64 << 20)
        let response = try await self.client.answer(request)
        guard response.status == 200 else { throw ValidationError("the sandbox answered \(response.status)") }
        return Data(response.body)
    }
}
