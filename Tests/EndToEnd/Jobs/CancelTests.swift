// Carillon · CancelTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Sandbox
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Jobs cancelled before, during and after delivery, and ids that are used twice.
@Suite(.timeLimit(.minutes(10)))
struct CancelTests {
    @Test("a job cancelled by id or entry before it arrives is stored as cancelled, and a repeat agrees")
    func before() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "backend", scope: .service)
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            let entry = try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "by entry")])
            let whole = try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "by stream")])
            try await stack.append([
                ("users", #"["ada","bob"]"#), ("type", "payment_received"), ("title", "by id"), ("id", "j/1"),
                ("org", "acme"),
            ])
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "kept"), ("id", "j/1")])
            try await stack.append([
                ("user", "ada"), ("type", "payment_received"), ("title", "by a word"), ("id", "test"),
            ])
            let paths = ["j%2F1?org=acme", entry, "carillon:jobs%2F\(whole)", "test"]
            for path in paths {
                #expect(try await gateway.call(.get, "/v1/jobs/\(path)", token: service).status == 404)
                let answer = try await gateway.call(.delete, "/v1/jobs/\(path)", token: service)
                #expect(answer.status == 200)
                #expect(answer.body["status"]?.string == "pending")
                #expect(answer.body["cancelled"]?.integer == 0)
                #expect(answer.body["final"]?.bool == false)
                let report = try await gateway.call(.get, "/v1/jobs/\(path)", token: service)
                #expect(report.status == 200 && report.body["reach"]?["stored"]?.integer == 0)
                #expect(report.body["cancelled_at"]?.string != nil)
            }
            _ = try await stack.startDispatcher()
            try await eventually("only the other organisation's goes out") { stack.pushed() == ["phone": ["kept"]] }
            try await eventually("all are stored") {
                try await stack.statuses(user: "ada") == [
                    "by entry": "cancelled", "by stream": "cancelled", "by id": "cancelled", "by a word": "cancelled",
                    "kept": "sent",
                ]
            }
            for (path, count) in zip(paths, [2, 1, 1, 1] as [Int64]) {
                let answer = try await gateway.call(.delete, "/v1/jobs/\(path)", token: service)
                #expect(answer.body["status"]?.string == "cancelled")
                #expect(answer.body["cancelled"]?.integer == count)
                #expect(answer.body["too_late"]?.integer == 0)
                #expect(answer.body["final"]?.bool == true)
            }
            let list = try await gateway.call(.get, "/v1/notifications", token: Stack.token(user: "ada"))
            #expect(list.body["notifications"]?.array?.compactMap { $0["title"]?.string } == ["kept"])
            #expect(list.body["unread"]?.integer == 1)
        }
    }

    @Test("an entry that two lanes have is refused until its stream is named, which cancels that job alone")
    func sameEntry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "backend", scope: .service)
            func add(_ title: String, _ entry: String, to stream: String) async throws {
                try await stack.connection.send(
                    "XADD", .text(stream), .text(entry), "user", "ada", "type", "payment_received", "title",
                    .text(title))
            }
            func cancelled() async throws -> [String] {
                try await stack.query("SELECT job_id FROM carillon.cancellations ORDER BY job_id")
                    .map { try $0.text(0) }
            }
            let entry = try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "normal")])
            try await add("bulk", entry, to: "carillon:jobs:bulk")
            let alone = "\(entry.prefix { $0 != "-" })-7"
            try await add("alone", alone, to: "carillon:jobs:critical")
            _ = try await stack.startDispatcher()
            let sent = ["normal": "sent", "bulk": "sent", "alone": "sent"]
            try await eventually("all are in the inbox") { try await stack.statuses(user: "ada") == sent }
            for method in [TransferRequest.Method.get, .delete] {
                let answer = try await gateway.call(method, "/v1/jobs/\(entry)", token: service)
                #expect(answer.status == 409)
            }
            #expect(try await cancelled().isEmpty)
            for path in ["carillon:jobs:bulk%2F\(entry)", alone] {
                let answer = try await gateway.call(.delete, "/v1/jobs/\(path)", token: service)
                #expect(answer.status == 200)
                #expect(answer.body["cancelled"]?.integer == 1)
                #expect(answer.body["too_late"]?.integer == 0)
            }
            let statuses = ["normal": "sent", "bulk": "cancelled", "alone": "cancelled"]
            #expect(try await stack.statuses(user: "ada") == statuses)
            #expect(try await cancelled() == ["carillon:jobs:bulk/\(entry)", "carillon:jobs:critical/\(alone)"])
            // A job's own id comes first.
            try await stack.append([
                ("user", "bob"), ("type", "payment_received"), ("title", "by id"), ("id", entry),
            ])
            try await eventually("it is in the inbox") { try await stack.statuses(user: "bob") == ["by id": "sent"] }
            let answer = try await gateway.call(.delete, "/v1/jobs/\(entry)", token: service)
            #expect(answer.body["cancelled"]?.integer == 1)
            #expect(try await stack.statuses(user: "bob") == ["by id": "cancelled"])
            #expect(try await stack.statuses(user: "ada") == statuses)
        }
    }

    @Test("a cancelled notification leaves the inbox and the sockets, and its push is never sent")
    func during() async throws {
        var configuration = SandboxConfiguration()
        configuration.retryAfter = 600
        try await Stack.with(sandbox: configuration) { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "backend", scope: .service)
            try await gateway.register(user: "retry", platform: "android", token: "unavailable-once-phone")
            try await gateway.register(user: "mute", platform: "android", token: "mute-phone")
            var behaviour = TestSocket.Behaviour()
            behaviour.answersPings = false
            let socket = try await TestSocket.synced(port: gateway.port, user: "mute", behaviour: behaviour)
            try await stack.append([
                ("users", #"["retry","mute","nobody"]"#), ("type", "payment_received"), ("title", "Paid"), ("id", "j1"),
            ])
            try await eventually("its proof is missing") { try await stack.proofDeadlines().count == 1 }
            try await stack.setProofDeadlines(to: Schedules.now() + .seconds(600))
            _ = try await socket.first("notification")
            try await eventually("the first attempt failed, and the offline user's inbox has it") {
                let retry = try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'")
                let away = try await stack.statuses(user: "nobody")
                return !retry.isEmpty && stack.sandbox.faultAttempts()["unavailable-once-phone"] == 1
                    && away == ["Paid": "sent"]
            }
            let answer = try await gateway.call(.delete, "/v1/jobs/j1", token: service)
            #expect(answer.body["status"]?.string == "cancelled")
            #expect(answer.body["cancelled"]?.integer == 3)
            #expect(answer.body["too_late"]?.integer == 0)
            let deleted = try await socket.first("deleted")
            #expect(deleted["version"]?.integer == 2)
            #expect(deleted["unread"]?.integer == 0)
            for user in ["retry", "mute", "nobody"] {
                let token = Stack.token(user: user)
                let list = try await gateway.call(.get, "/v1/notifications", token: token)
                #expect(list.body["notifications"]?.array?.isEmpty == true, "\(user)")
                #expect(list.body["unread"]?.integer == 0, "\(user)")
                #expect(list.body["version"]?.integer == 2, "\(user)")
            }
            // The gate stops the retry and the fallback push at the latest.
            try await stack.setProofDeadlines(to: Schedules.now())
            try await eventually("the retry was skipped, and nothing is unconfirmed") {
                try await stack.makeDue(.fcm)
                let skipped = try await stack.query(
                    "SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'skipped' AND reason = 'cancelled'"
                )
                let unproven = try await stack.proofDeadlines()
                return !skipped.isEmpty && unproven.isEmpty
            }
            #expect(stack.pushed().isEmpty)
            let report = try await eventualValue("the job is final") {
                let report = try await gateway.call(.get, "/v1/jobs/j1", token: service)
                return report.body["final"]?.bool == true ? report : nil
            }
            #expect(report.body["recipients"]?["cancelled"]?.integer == 3)
            let again = try await gateway.call(.delete, "/v1/jobs/j1", token: service)
            #expect(again.body["cancelled"]?.integer == 3)
        }
    }

    @Test("a push that a provider already has or gets meanwhile counts as too late, and the job becomes final")
    func tooLate() async throws {
        var configuration = SandboxConfiguration()
        let pause = SlowPause(.seconds(600))
        configuration.slowPause = pause
        try await Stack.with(sandbox: configuration) { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "backend", scope: .service)
            try await gateway.register(user: "quick", platform: "android", token: "quick-phone")
            try await gateway.register(user: "slow", platform: "android", token: "slow-phone")
            try await stack.append([
                ("users", #"["quick","slow"]"#), ("type", "payment_received"), ("title", "Paid"), ("id", "j1"),
            ])
            try await eventually("one provider has accepted, the other has not answered") {
                try await stack.statuses(user: "quick") == ["Paid": "sent"]
                    && stack.sandbox.faultAttempts()["slow-phone"] != nil
            }
            let answer = try await gateway.call(.delete, "/v1/jobs/j1", token: service)
            #expect(answer.body["status"]?.string == "cancelled")
            #expect(answer.body["cancelled"]?.integer == 1)
            #expect(answer.body["too_late"]?.integer == 1)
            #expect(answer.body["final"]?.bool == false)
            pause.end()
            let report = try await eventualValue("the page is final") {
                let report = try await gateway.call(.get, "/v1/jobs/j1", token: service)
                return report.body["final"]?.bool == true ? report : nil
            }
            #expect(report.body["recipients"]?["sent"]?.integer == 2)
            #expect(report.body["recipients"]?["cancelled"]?.integer == 0)
            let again = try await gateway.call(.delete, "/v1/jobs/j1", token: service)
            #expect(again.body["status"]?.string == "too_late")
            #expect(again.body["too_late"]?.integer == 2)
            let reason = try await stack.query(
                "SELECT status_reason FROM carillon.notifications WHERE user_id = 'slow'"
            )
            #expect(try reason.first?.text(0) == "cancelled_too_late")
        }
    }

    @Test("a notification read while its push waits for a retry stays in the inbox, and the job becomes final")
    func read() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "backend", scope: .service)
            for user in ["ada", "bob"] {
                try await gateway.register(user: user, platform: "android", token: "unavailable-\(user)")
            }
            for (user, id) in [("ada", "j1"), ("bob", "j2")] {
                try await stack.append([
                    ("user", user), ("type", "payment_received"), ("title", "Paid"), ("id", id),
                ])
            }
            try await eventually("both wait for their retries") {
                try await stack.query(
                    "SELECT DISTINCT user_id FROM carillon.delivery_attempts WHERE outcome = 'retry'"
                ).count == 2
            }
            for user in ["ada", "bob"] {
                let token = Stack.token(user: user)
                let read = try await gateway.call(
                    .post, "/v1/notifications/read", token: token, json: #"{"all":true}"#)
                #expect(read.status == 200)
            }
            // One is cancelled; the other reaches its retry, which is no longer needed.
            let answer = try await gateway.call(.delete, "/v1/jobs/j1", token: service)
            #expect(answer.body["status"]?.string == "too_late")
            for id in ["j1", "j2"] {
                let report = try await eventualValue("the page is final") {
                    let report = try await gateway.call(.get, "/v1/jobs/\(id)", token: service)
                    return report.body["final"]?.bool == true ? report : nil
                }
                #expect(report.body["recipients"]?["sent"]?.integer == 1)
            }
            let reasons = try await stack.query("SELECT status_reason FROM carillon.notifications")
            #expect(try reasons.map { try $0.text(0) } == ["read", "read"])
            for user in ["ada", "bob"] {
                let inbox = try await gateway.call(.get, "/v1/notifications", token: Stack.token(user: user))
                #expect(inbox.body["notifications"]?.array?.count == 1)
            }
        }
    }

    @Test("a notification whose device is removed before the retry ends, and the job becomes final")
    func deviceRemoved() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "backend", scope: .service)
            var devices: [String: String] = [:]
            for (user, channels) in [("ada", #"["in_app","push"]"#), ("bob", #"["push"]"#)] {
                devices[user] = try await gateway.register(
                    user: user, platform: "android", token: "unavailable-\(user)")
                try await stack.append([
                    ("user", user), ("type", "payment_received"), ("title", "Paid"), ("id", user),
                    ("channels", channels),
                ])
            }
            try await eventually("both wait for their retries") {
                try await stack.query(
                    "SELECT DISTINCT user_id FROM carillon.delivery_attempts WHERE outcome = 'retry'"
                ).count == 2
            }
            for (user, device) in devices {
                let removed = try await gateway.call(
                    .delete, "/v1/devices/\(device)", token: Stack.token(user: user))
                #expect(removed.status == 204)
            }
            // Without an inbox it failed.
            for (user, status) in [("ada", "sent"), ("bob", "failed")] {
                let report = try await eventualValue("the job is final") {
                    let report = try await gateway.call(.get, "/v1/jobs/\(user)", token: service)
                    return report.body["final"]?.bool == true ? report : nil
                }
                #expect(report.body["recipients"]?[status]?.integer == 1)
            }
            let reasons = try await stack.query("SELECT status_reason FROM carillon.notifications")
            #expect(try reasons.map { try $0.text(0) } == ["no_device", "no_device"])
            #expect(stack.pushed().isEmpty)
        }
    }

    @Test("cancelling a job that its user opted out of reports not sent")
    func unwanted() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "backend", scope: .service)
            let refusal = try await gateway.call(
                .put, "/v1/preferences", token: Stack.token(user: "ada"),
                json: #"{"types":[{"type":"breaking_news","push":false,"in_app":false}]}"#)
            #expect(refusal.status == 200)
            try await stack.append([("user", "ada"), ("type", "breaking_news"), ("title", "Extra"), ("id", "j1")])
            try await eventually("it is suppressed") {
                try await stack.statuses(user: "ada") == ["Extra": "suppressed"]
            }
            let answer = try await gateway.call(.delete, "/v1/jobs/j1", token: service)
            #expect(answer.body["status"]?.string == "not_sent")
            #expect(answer.body["cancelled"]?.integer == 0)
            #expect(answer.body["not_sent"]?.integer == 1)
            #expect(answer.body["final"]?.bool == true)
        }
    }

    @Test("only services cancel, and faulty requests name the field")
    func refusals() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let user = Stack.token(user: "ada")
            let service = Stack.token(user: "backend", scope: .service)
            for method in [TransferRequest.Method.get, .delete] {
                #expect(try await gateway.call(method, "/v1/jobs/j1", token: nil).status == 401)
                #expect(try await gateway.call(method, "/v1/jobs/j1", token: user).status == 403)
                #expect(try await gateway.call(method, "/v1/jobs/j1?who=x", token: service).faults == ["who"])
                #expect(try await gateway.call(method, "/v1/jobs/j1?org=", token: service).faults == ["org"])
            }
            for path in ["/v1/schedules?org=", "/v1/webhooks?org="] {
                let answer = try await gateway.call(.get, path, token: service)
                #expect(answer.status == 400 && answer.faults == ["org"])
            }
            let long = String(repeating: "x", count: 129)
            #expect(try await gateway.call(.delete, "/v1/jobs/\(long)", token: service).faults == ["id"])
            #expect(try await stack.query("SELECT 1 FROM carillon.cancellations").isEmpty)
        }
    }

    @Test("a job id reused with other content is refused by name and stops nothing else")
    func conflict() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            func append(_ title: String, id: String? = "order-1") async throws -> String {
                let fields = [("user", "ada"), ("type", "invoice_created"), ("title", title)]
                return try await stack.append(fields + (id.map { [("id", $0)] } ?? []))
            }
            // No dispatcher runs yet, so the first three arrive in one batch.
            _ = try await append("first")
            _ = try await append("first")
            let inBatch = try await append("second")
            _ = try await stack.startDispatcher()
            try await eventually("the first one came") { socket.titles == ["first"] }
            let later = try await append("third")
            _ = try await append("first")
            _ = try await append("last", id: nil)
            try await eventually("the last one came") { socket.titles == ["first", "last"] }
            try await eventually("those with other content are dead-lettered") {
                try await stack.deadReasons().count == 2
            }
            let reasons = try await stack.deadReasons()
            #expect(Set(reasons.keys) == [inBatch, later])
            #expect(reasons.values.allSatisfy { $0 == "id: was used before with other content; give another id" })
            let shared = try await stack.append([
                ("users", #"["ada","bob"]"#), ("type", "invoice_created"), ("title", "fourth"), ("id", "order-1"),
            ])
            try await eventually("the letter names only the user who has the id") {
                let users = try await stack.query(
                    """
                    SELECT f ->> 1 FROM carillon.dead_letters d CROSS JOIN LATERAL jsonb_array_elements(d.fields) f
                    WHERE d.entry = $1 AND f ->> 0 = 'users'
                    """,
                    .text(shared))
                return try users.map { try $0.text(0) } == [#"["ada"]"#]
            }
            #expect(try await stack.statuses(user: "bob").keys.sorted() == ["fourth"])
        }
    }
}
