// Carillon · ButtonTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Sandbox
import Support
import Testing

/// Buttons of the household-task app: the task's state picks the category and the actions.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ButtonTests {
    private static let table: [(state: String, category: String, buttons: [String])] = [
        ("overdue", "TASK_ACTIONABLE", ["edit", "complete", "cancel", "mark_in_progress"]),
        ("due_soon", "TASK_ACTIONABLE", ["edit", "complete", "cancel", "mark_in_progress"]),
        ("in_progress", "TASK_IN_PROGRESS", ["edit", "complete", "cancel"]),
        ("cancelled", "TASK_CANCELLED", ["edit"]),
        ("completed", "TASK_COMPLETED", ["edit"]),
    ]

    @Test("each task state has its category on iOS and its buttons on Android; other states have none")
    func states() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let phone = String(repeating: "ab", count: 32)
            try await gateway.register(user: "ada", platform: "ios", token: phone)
            try await gateway.register(user: "ada", platform: "android", token: "robot")
            for row in Self.table {
                try await stack.append([
                    ("user", "ada"), ("type", "task_overdue"), ("title", row.state), ("state", row.state),
                    ("entity_type", "task"), ("entity_id", "t7"),
                ])
            }
            try await stack.append([("user", "ada"), ("type", "task_assigned"), ("title", "new"), ("state", "new")])
            try await stack.append([
                ("user", "ada"), ("type", "task_overdue"), ("title", "own"), ("state", "overdue"), ("category", "MINE"),
                ("data", #"{"actions":[],"a":1}"#),
            ])
            try await eventually("both phones have them") {
                stack.pushed()[phone]?.count == 7 && stack.pushed()["robot"]?.count == 7
            }
            let received = try stack.sandbox.received().map { ($0, try JSONParser.parse($0.payload)) }
            let rows: [(state: String, category: String?, buttons: [String])] =
                Self.table.map { ($0.state, $0.category, $0.buttons) } + [("new", nil, []), ("own", "MINE", [])]
            for row in rows {
                for (message, payload) in received where Stack.title(message) == row.state {
                    switch message.provider {
                    case .apns:
                        #expect(payload["aps"]?["category"]?.string == row.category)
                        #expect(payload["actions"]?.texts("id") ?? [] == row.buttons)
                    case .fcm:
                        let actions = payload["message"]?["data"]?["actions"]?.string
                        let parsed = try actions.map { try JSONParser.parse(Array($0.utf8)) }
                        #expect(parsed?.texts("id") ?? [] == row.buttons)
                    case .webpush:
                        #expect(payload["actions"]?.texts("id") ?? [] == row.buttons)
                    case .email, .webhook: Issue.record("unexpected provider")
                    }
                }
            }
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let inbox = try await ada.get("/v1/notifications").body["notifications"]
            #expect(
                Set(inbox?.texts("category") ?? []) == ["tasks", "MINE"], "the inbox shows the type's category")
            let cancel = received.compactMap { $0.1["actions"]?.array?.first { $0["id"]?.string == "cancel" } }.first
            #expect(cancel?["title"]?.string == "Cancel")
            #expect(cancel?["destructive"]?.bool == true)
        }
    }
}
