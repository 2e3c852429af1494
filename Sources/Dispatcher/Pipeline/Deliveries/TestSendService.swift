// Carillon · TestSendService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import ServiceLifecycle
import Storage

/// Sends test messages to one device or e-mail address, and returns the provider's answer.
///
/// Tests bypass the gate, records, retries and breakers on purpose.
package struct TestSendService: Service {
    /// The most requests in flight; several, so that a provider that hangs delays only its own.
    private static let mostAtOnce = 8

    private let dispatcher: Dispatcher
    private let reader: RedisClient
    private let patience: Duration

    /// - Parameters:
    ///   - reader: a connection for blocking reads.
    ///   - patience: how long a provider may take; the caller waits a little longer.
    package init(
        dispatcher: Dispatcher,
        reader: RedisClient,
        patience: Duration = .seconds(35)
    ) {
        self.dispatcher = dispatcher
        self.reader = reader
        self.patience = patience
    }

    package func run() async throws {
        try await interruptible(self.reader, through: self.dispatcher.redis) { await self.work() }
    }

    private func work() async {
        let sends = self.dispatcher.live.testSends
        await withTaskGroup(of: Void.self) { group in
            var underWay = 0
            while isRunning {
                if underWay == Self.mostAtOnce {
                    _ = await group.next()
                    underWay -= 1
                }
                do throws(RedisError) {
                    guard let request = try await sends.next(on: self.reader) else { continue }
                    group.addTask { await self.work(request, sends) }
                    underWay += 1
                } catch {
                    self.dispatcher.logger.warning(
                        "cannot read test sends; retrying in 1 s", metadata: ["error": "\(error)"])
                    await pause(for: .seconds(1))
                }
            }
        }
    }

    private func work(_ request: [UInt8], _ sends: TestSends) async {
        guard let value = try? JSONParser.parse(request), let id = value["id"]?.string else { return }
        do throws(RedisError) {
            try await sends.answer(id, await self.answer(value))
        } catch {
            self.dispatcher.logger.warning("cannot answer a test send", metadata: ["error": "\(error)"])
        }
    }

    private func answer(_ request: JSONValue) async -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        await self.fill(request, &writer)
        writer.endObject()
        return writer.bytes
    }

    private func fill(_ request: JSONValue, _ writer: inout JSONWriter) async {
        let isMail = request["channel"]?.string == "email"
        let user = request["user"]?.string ?? ""
        let found: Device?
        do throws(PostgresError) {
            found = try await self.device(request, of: user, isMail: isMail)
        } catch {
            return Self.fault("this dispatcher (\(self.dispatcher.name)) cannot read PostgreSQL; try again", &writer)
        }
        guard let device = found else {
            return Self.fault("the \(isMail ? "address" : "device") no longer exists", &writer)
        }
        guard let entry = self.dispatcher.channels.entry(for: device) else {
            let app = isMail ? "any app" : "app \(device.app)"
            return Self.fault(
                "this dispatcher (\(self.dispatcher.name)) has no credentials of \(device.provider.rawValue) for \(app)",
                &writer)
        }
        let start = ContinuousClock.now
        let reply = await self.send(self.message(request, user: user), to: device, by: entry.channel)
        let duration = ContinuousClock.now - start
        writer.member("outcome", reply.outcome)
        writer.member("reason", reply.outcome == "accepted" ? nil : reply.summary)
        writer.key("provider_id")
        if case .answered(.accepted(let id)) = reply.result { writer.string(id) } else { writer.null() }
        writer.member("answer", reply.transcript)
        writer.member("advice", reply.advice(of: device.provider))
        writer.member("milliseconds", duration.inMilliseconds)
    }

    /// Returns the provider's answer, or a timeout.
    private func send(
        _ message: PushMessage,
        to device: Device,
        by channel: any ProviderChannel
    ) async -> ProviderReply {
        await withTaskGroup(of: ProviderReply?.self) { group in
            group.addTask { await channel.send(message, to: device) }
            group.addTask {
                // The time limit of the other task in the group.
                try? await Task.sleep(for: self.patience)
                return nil
            }
            let first = await group.next() ?? nil
            // A cancelled call ends at once.
            group.cancelAll()
            if let first { return first }
            let seconds = self.patience.components.seconds
            return ProviderReply(
                .unanswered(reason: "timeout", mayHaveBeenSent: true),
                transcript: "the provider did not answer in \(seconds) s")
        }
    }

    private func device(
        _ request: JSONValue,
        of user: String,
        isMail: Bool
    ) async throws(PostgresError) -> Device? {
        guard isMail else {
            guard let id = request["device"]?.string.flatMap({ DeviceID($0) }) else { return nil }
            return try await self.dispatcher.database.devices.list(user: user).first { $0.id == id }
        }
        let preferences = self.dispatcher.database.preferences
        guard let address = try await preferences.settings(user: user).email else { return nil }
        return Device(
            id: Device.emailAddress, user: user, platform: .web, provider: .email, app: "default",
            environment: .production, token: address, registeredAt: self.dispatcher.now())
    }

    private static func fault(_ reason: String, _ writer: inout JSONWriter) {
        writer.member("outcome", "not_sent")
        writer.member("reason", reason)
    }

    private func message(_ request: JSONValue, user: String) -> PushMessage {
        let now = self.dispatcher.now()
        var generator = SystemRandomNumberGenerator()
        let id = NotificationID(high: generator.next(), low: generator.next())
        var notification = Notification(id: id, user: user, type: request["type"]?.string ?? "test", createdAt: now)
        notification.title = request["title"]?.string ?? "Test"
        notification.body = request["body"]?.string ?? "This is a test of Carillon."
        notification.data = request["data"].map { JSONWriter.bytes(of: $0) }
        notification.expiresAt = now + .seconds(300)
        var message = PushMessage(notification: notification, now: now)
        // A person waits for it.
        message.lane = .critical
        return message
    }
}

extension ProviderReply {
    /// The outcome in a word.
    var outcome: String {
        switch self.result {
        case .answered(.accepted): "accepted"
        case .answered(.deadToken): "dead_token"
        case .answered(.retry), .answered(.retryDevice), .answered(.slowDown): "retry_later"
        case .answered(.refused), .unsendable: "refused"
        case .answered(.configuration), .answered(.staleCredential), .noCredential: "configuration"
        case .unanswered: "no_answer"
        case .noTurn, .fenced: "not_sent"
        }
    }
}
