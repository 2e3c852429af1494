// Carillon · WebhookProviderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Sandbox
import Support
import Testing

/// Webhook devices: notifications for an app's own program over HTTP.
@Suite(.timeLimit(.minutes(10)))
struct WebhookProviderTests {
    private static func settings(_ stack: Stack) -> [String: String] {
        ["WEBHOOK_PROVIDER_URL": stack.sandbox.webhookURL, "WEBHOOK_PROVIDER_SECRET": stack.sandbox.webhookSecret]
    }

    private static func notify(_ stack: Stack, _ title: String) async throws {
        try await stack.append([
            ("user", "ada"), ("type", "payment_received"), ("title", title), ("url", "/invoices/9"),
            ("data", #"{"invoice":9}"#),
        ])
    }

    @Test("a receiver gets the signed notification once, and its id for it is recorded")
    func delivers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let catalog = try stack.catalog("types: {payment_received: {delivery: push}}")
            _ = try await stack.startDispatcher(environment: Self.settings(stack).merging(catalog) { $1 })
            let device = try await gateway.register(user: "ada", platform: "webhook", token: "#ops-room")
            try await Self.notify(stack, "Paid")
            try await eventually("it is there") { stack.pushed()["#ops-room"] == ["Paid"] }
            let message = try #require(stack.sandbox.received().first)
            let payload = try JSONParser.parse(message.payload)
            #expect(payload["user"]?.string == "ada")
            #expect(payload["device"]?.string == device)
            #expect(payload["app"]?.string == "default")
            #expect(payload["badge"]?.integer == 1)
            #expect(payload["notification"]?["type"]?.string == "payment_received")
            #expect(payload["notification"]?["url"]?.string == "/invoices/9")
            #expect(payload["notification"]?["data"]?["invoice"]?.integer == 9)
            #expect(message.headers["carillon-delivery"] == payload["delivery"]?.string)
            try await eventually("the attempt is recorded") {
                let rows = try await stack.query(
                    """
                    SELECT provider, provider_id FROM carillon.delivery_attempts
                    WHERE kind = 'push' AND outcome = 'accepted'
                    """)
                return try rows.map { "\(try $0.text(0)) \(try $0.text(1).utf8.count)" } == ["webhook 36"]
            }
            #expect(try await stack.statuses(user: "ada") == ["Paid": "sent"])
        }
    }

    @Test("each device has its own delivery, and the trace has the APNs id")
    func deliveries() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher(environment: Self.settings(stack))
            for name in ["one", "two"] {
                try await gateway.register(user: "ada", platform: "webhook", token: name, name: name)
            }
            let phone = String(repeating: "ab", count: 32)
            try await gateway.register(user: "ada", platform: "ios", token: phone, name: "phone")
            try await Self.notify(stack, "Paid")
            try await eventually("all have it") { stack.pushed().count == 3 }
            let ids = stack.sandbox.received().compactMap { $0.headers["carillon-delivery"] ?? $0.headers["apns-id"] }
            #expect(Set(ids).count == 3)
            try await eventually("the APNs id, which is ours, is recorded") {
                try await stack.query(
                    """
                    SELECT provider_id FROM carillon.delivery_attempts
                    WHERE provider = 'apns' AND outcome = 'accepted'
                    """
                ).first?.text(0) == stack.sandbox.received().first { $0.token == phone }?.headers["apns-id"]
            }
        }
    }

    @Test("410 deactivates the device, 503 is retried, 400 is a dead letter")
    func answers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher(environment: Self.settings(stack))
            for token in ["gone-1", "unavailable-once-1", "badrequest-1"] {
                try await gateway.register(user: "ada", platform: "webhook", token: token, name: token)
            }
            try await Self.notify(stack, "Paid")
            try await eventually("the retried one has arrived") { stack.pushed() == ["unavailable-once-1": ["Paid"]] }
            try await eventually("the dead letter is there") {
                try await stack.deadReasons().values.contains("webhook refused it: HTTP_400")
            }
            try await eventually("the ended device is off") {
                let list = try await gateway.call(.get, "/v1/devices", token: Stack.token(user: "ada"))
                let off = list.body["devices"]?.array?.filter { $0["active"]?.bool == false }
                return off?.map { $0["deactivated_reason"]?.string } == ["HTTP_410"]
            }
        }
    }

    @Test("a receiver with another secret keeps the work waiting, and the secret is never logged")
    func wrongSecret() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            var settings = Self.settings(stack)
            settings["WEBHOOK_PROVIDER_SECRET"] = "hunter2-hunter2-hunter2"
            let dispatcher = try await stack.startDispatcher(environment: settings)
            try await gateway.register(user: "ada", platform: "webhook", token: "room")
            try await Self.notify(stack, "Paid")
            try await eventually("the fault is logged") {
                dispatcher.errors().contains("provider rejected the credentials or settings")
            }
            try await eventually("it is kept") {
                try await !stack.query(
                    "SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry' AND reason = 'HTTP_401'"
                ).isEmpty
            }
            #expect(!dispatcher.errors().contains("hunter2"))
        }
    }
}
