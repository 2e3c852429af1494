// Carillon · UserRestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Sandbox
import Storage
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Users as services manage them: import, export and erasure.
@Suite(.timeLimit(.minutes(10)))
struct UserRestTests {
    private static let record = """
        {"settings":{"zone":"Europe/Zurich","locale":"de-CH","email":"ada@example.com",
        "quiet_hours":{"start":"22:00","end":"07:00"}},
        "preferences":[{"type":"invoice_created","push":false},{"type":"payment_received","quiet_hours":"none"}],
        "devices":[{"platform":"android","token":"ada-phone","name":"phone"}],"topics":["news"]}
        """

    @Test("a user record is stored at once and exported whole, by services only")
    func roundTrip() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "backend", scope: .service)
            let ada = Stack.token(user: "ada")
            for method in [TransferRequest.Method.put, .get, .delete] {
                #expect(try await gateway.call(method, "/v1/users/ada", token: ada, json: "{}").status == 403)
            }
            #expect(try await gateway.call(.get, "/v1/users/ada", token: service).status == 404)
            for _ in 0..<2 {
                let put = try await gateway.call(.put, "/v1/users/ada", token: service, json: Self.record)
                #expect(put.status == 200)
                #expect(put.body["devices"]?.array?.first?["name"]?.string == "phone")
                #expect(put.body["devices"]?.array?.first?["token"] == nil)
            }
            // Members that are left out stay, also those of the parts.
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: "{}").status == 200)
            let optOut = #"{"settings":{"opted_out":true},"preferences":[{"type":"invoice_created","email":false}]}"#
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: optOut).status == 200)
            let locale = #"{"settings":{"locale":"fr"}}"#
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: locale).status == 200)
            let settings = try await gateway.call(.get, "/v1/settings", token: ada)
            #expect(settings.body["quiet_hours"]?["start"]?.string == "22:00")
            #expect(settings.body["email"]?.string == "ada@example.com")
            #expect(settings.body["locale"]?.string == "fr")
            #expect(settings.body["opted_out"] == .bool(true))
            let free = #"{"settings":{"opted_out":false}}"#
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: free).status == 200)

            // More than one page of rows.
            for number in 0..<201 {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "n\(number)")])
            }
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Paid")])
            try await eventually("all are stored") { try await stack.statuses(user: "ada").count == 202 }
            try await eventually("the push is recorded") {
                try await stack.query(
                    "SELECT FROM carillon.delivery_attempts WHERE kind = 'push' AND outcome = 'accepted'"
                ).count == 1
            }
            let export = try await gateway.call(.get, "/v1/users/ada", token: service)
            #expect(export.status == 200)
            #expect(export.body["user_id"]?.string == "ada")
            #expect(export.body["user_settings"]?["zone"]?.string == "Europe/Zurich")
            #expect(export.body["inboxes"]?["total"]?.integer == 202)
            let titles = export.body["notifications"]?.array?.compactMap { $0["title"]?.string } ?? []
            #expect(Set(titles).count == 202)
            #expect(titles.count == 202)
            #expect(export.body["devices"]?.array?.first?["token"]?.string == "ada-phone")
            #expect(export.body["preferences"]?.array?.first?["push"] == .bool(false))
            #expect(export.body["subscriptions"]?.array?.first?["topic"]?.string == "news")
            // The push, and the registration, which was not repeated.
            let kinds = export.body["delivery_attempts"]?.array?.compactMap { $0["kind"]?.string }
            #expect(Set(kinds ?? []) == ["push", "token"])
            #expect(kinds?.count { $0 == "token" } == 1)
        }
    }

    @Test("a user whom only a dead letter names is exported")
    func exportOfDeadLetter() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "backend", scope: .service)
            try await stack.append([("user", "ada"), ("type", "no_such_type"), ("title", "Lost")])
            try await eventually("it is a dead letter") {
                try await stack.query("SELECT FROM carillon.dead_letters").count == 1
            }
            #expect(try await stack.query("SELECT FROM carillon.users").count == 0)
            let export = try await gateway.call(.get, "/v1/users/ada", token: service)
            #expect(export.status == 200)
            #expect(export.body["dead_letters"]?.array?.count == 1)
            #expect(export.body["users"] == .null)
            #expect(try await gateway.call(.get, "/v1/users/bob", token: service).status == 404)
        }
    }

    @Test("every faulty field is named with its path, and nothing is stored")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "backend", scope: .service)
            let body = """
                {"settings":{"zone":"Mars","quiet_hours":{"start":"x"}},"preferences":[{"type":"unheard_of"}],
                "devices":[{"platform":"ios","token":"zz"},5],"topics":[""],"colour":1}
                """
            let answer = try await gateway.call(.put, "/v1/users/ada", token: service, json: body)
            #expect(answer.status == 422)
            #expect(
                answer.faults == [
                    "settings.zone", "settings.quiet_hours.start", "settings.quiet_hours.end", "preferences[0].type",
                    "devices[0].token", "devices[1]", "topics[0]", "colour",
                ]
            )
            #expect(try await stack.query("SELECT FROM carillon.users").count == 0)
            let long = String(repeating: "u", count: 129)
            for user in [long, "%00", "%zz"] {
                let answer = try await gateway.call(.put, "/v1/users/\(user)", token: service, json: "{}")
                #expect(answer.status == 400, "\(user)")
                #expect(answer.faults == ["id"])
            }
            let escaped = try await gateway.call(.put, "/v1/users/a%2Fb%20%C3%A9", token: service, json: "{}")
            #expect(escaped.body["user_id"]?.string == "a/b é")
        }
    }

    @Test("erasure clears every table and Redis, closes sockets, spares other users and may be repeated")
    func erasure() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(name: "first")
            let other = try await stack.startGateway(name: "second")
            let dispatcher = try await stack.startDispatcher()
            let service = Stack.token(user: "backend", scope: .service)
            for user in ["ada", "eve"] {
                let record = Self.record.replacing("ada-phone", with: "\(user)-phone")
                #expect(try await gateway.call(.put, "/v1/users/\(user)", token: service, json: record).status == 200)
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "Paid \(user)")])
                // A dead letter of each user; below, one for both.
                try await stack.append([("user", user), ("type", "unheard_of")])
            }
            try await stack.append([("users", #"["ada","eve"]"#), ("type", "unheard_of")])
            // Broadcasts that exclude the user, alone and with another.
            for except in [#"["ada"]"#, #"["ada","eve"]"#] {
                try await stack.append([("topic", "quiet"), ("type", "invoice_created"), ("except", except)])
            }
            try await eventually("both were pushed, the dead letters stored and the broadcasts done") {
                let done = try await stack.query("SELECT FROM carillon.broadcasts WHERE state = 'done'").count
                let attempts = try await stack.query(
                    "SELECT FROM carillon.delivery_attempts WHERE kind = 'push' AND outcome = 'accepted'"
                ).count
                let letters = try await stack.query("SELECT FROM carillon.dead_letters").count
                return attempts == 2 && letters == 3 && done == 2
            }
            let behaviour = TestSocket.Behaviour(answersPings: false)
            let token = Stack.token(user: "ada")
            var sockets: [TestSocket] = []
            for port in [gateway.port, other.port] {
                sockets.append(try await .synced(port: port, user: "ada", behaviour: behaviour))
            }
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "unproven")])
            for socket in sockets { _ = try await socket.first("notification") }
            // No fallback push happens meanwhile, and the wait is renewed in case it was over
            // before.
            #expect(try await dispatcher.stop() == .code(0))
            let unproven = try await stack.query(
                "UPDATE carillon.notifications SET status = 'pending' WHERE title = 'unproven' RETURNING id")
            let attempts = Int64(
                try await stack.query("SELECT FROM carillon.delivery_attempts WHERE user_id = 'ada'").count)
            #expect(attempts >= 2, "the registration and a push")
            let waiting = AwaitedProof(
                id: NotificationID(try #require(unproven.first).uuid(0)), user: "ada", lane: .critical)
            var batch = RedisBatch()
            Live(stack.connection).proofDeadlines
                .add([(waiting, deadline: Timestamp(seconds: 4_000_000_000))], in: &batch)
            try await stack.connection.run(batch)
            let retries: RedisArgument = "carillon:{fcm}:retry:critical"
            let zero = "00000000-0000-0000-0000-000000000000"
            for user in ["ada", "eve", "x ada"] {
                try await stack.connection.send(
                    "ZADD", retries, "99999999999999", .text("1 \(zero) \(zero) 1 - \(user)"))
            }
            let held: RedisArgument = "carillon:{fcm}:held:critical:default"
            try await stack.connection.send("ZADD", held, "99999999999999", .text("1 \(zero) \(zero) 0 - ada"))
            try await stack.connection.send("SADD", "carillon:{fcm}:held:critical", "default")
            for user in ["ada", "eve"] {
                for kind in TokenBuckets.Kind.allCases {
                    try await stack.connection.send("SET", .text("carillon:rate:\(kind.rawValue):{\(user)}"), "1")
                }
            }
            // The remains of a gateway that was killed.
            let ghost = ConnectionPresence(
                connection: "ghost", node: "gone", dialect: .native, state: .active, since: Timestamp(seconds: 1))
            _ = try await PresenceRegistry(Live(stack.connection)).register([("ada", ghost)])
            let answer = try await gateway.call(.delete, "/v1/users/ada", token: service)
            #expect(answer.status == 200)
            let rows = answer.body["postgres"]
            #expect(rows?["notifications"]?.integer == 2)
            for table in ["users", "user_settings", "inboxes", "devices", "preferences", "subscriptions"] {
                #expect(rows?[table]?.integer == (table == "preferences" ? 2 : 1), "\(table)")
            }
            #expect(rows?["delivery_attempts"]?.integer == attempts)
            #expect(rows?["dead_letters"]?.integer == 2)
            // The two sockets may have left by then.
            let present = try #require(answer.body["redis"]?["presence"]?.integer)
            #expect((1...3).contains(present))
            #expect(answer.body["redis"]?["usage"]?.integer == Int64(TokenBuckets.Kind.allCases.count))
            #expect(try await stack.connection.send("EXISTS", "carillon:rate:calls:{eve}").integer() == 1)
            #expect(answer.body["redis"]?["retries"]?.integer == 2)
            #expect(answer.body["redis"]?["unconfirmed"]?.integer == 1)
            #expect(try await stack.connection.send("ZCARD", retries).integer() == 2)
            #expect(try await stack.connection.send("ZCARD", held).integer() == 0)
            let letters = try await stack.query("SELECT fields::text FROM carillon.dead_letters")
            #expect(letters.count == 2)
            for row in letters { #expect(try row.text(0).contains("ada") == false) }
            let broadcasts = try await stack.query("SELECT fields::text FROM carillon.broadcasts ORDER BY id")
            #expect(try broadcasts.map { try $0.text(0).contains("ada") } == [false, false])
            #expect(try broadcasts.map { try $0.text(0).contains("eve") } == [false, true])
            #expect(try await gateway.call(.get, "/v1/users/ada", token: service).status == 404)
            let eve = try await gateway.call(.get, "/v1/users/eve", token: service)
            #expect(eve.body["notifications"]?.array?.count == 1)
            #expect(eve.body["devices"]?.array?.count == 1)

            // The user's tokens are revoked here at once, and the user's sockets end everywhere.
            #expect(try await gateway.call(.get, "/v1/notifications", token: token).status == 401)
            for socket in sockets {
                try await eventually("the socket is closed") { socket.closeCode == 4401 }
                try await eventually("the connection is closed") { socket.isClosed }
            }
            // Departures are stored in order, so a later one proves that the user's was handled.
            var noted: Int64 = 0
            for gateway in [gateway, other] {
                try await TestSocket.synced(port: gateway.port, user: "eve").close()
                let before = noted
                noted = try await eventualValue("it is noted") {
                    let rows = try await stack.query(
                        "SELECT coalesce(last_seen, 'epoch') FROM carillon.users WHERE user_id = 'eve'")
                    let moment = try #require(rows.first).timestamptz(0)
                    return moment > before ? moment : nil
                }
            }
            #expect(try await stack.query("SELECT FROM carillon.users WHERE user_id = 'ada'").count == 0)
            #expect(try await gateway.call(.get, "/v1/users/ada", token: service).status == 404)
            let revoked = try await stack.query("SELECT FROM carillon.token_revocations WHERE user_id = 'ada'")
            #expect(revoked.count == 1)
            let again = try await gateway.call(.delete, "/v1/users/ada", token: service)
            #expect(again.status == 200)
            for part in ["postgres", "redis"] {
                for member in again.body[part]?.object ?? [] { #expect(member.value.integer == 0, "\(member.key)") }
            }
        }
    }

    @Test("a call that registers many tokens while its user is erased leaves none of them")
    func erasureDuringRegistration() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(name: "first")
            // A gateway of its own, so that the erasure does not queue behind the registration.
            let other = try await stack.startGateway(name: "second")
            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: "{}").status == 200)
            try await stack.query(
                """
                CREATE FUNCTION carillon.hold() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    PERFORM pg_advisory_xact_lock_shared(1);
                    RETURN NEW;
                END $$
                """)
            try await stack.query(
                """
                CREATE TRIGGER hold BEFORE INSERT ON carillon.devices
                FOR EACH ROW EXECUTE FUNCTION carillon.hold()
                """)
            func waiting() async throws -> Int {
                try await stack.query(
                    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                ).count
            }
            let pool = try #require(stack.database?.pool)
            let calls = try await pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                let rows = (0..<100).map { #"{"platform":"android","token":"t\#($0)"}"# }.joined(separator: ",")
                let registering = Task {
                    try await gateway.call(
                        .post, "/rest/v1/user_push_tokens", token: Stack.token(user: "ada"), json: "[\(rows)]")
                }
                try await eventually("the registration waits") { try await waiting() == 1 }
                let erasing = Task { try await other.call(.delete, "/v1/users/ada", token: service) }
                try await eventually("the erasure waits for it") { try await waiting() == 2 }
                return [registering, erasing]
            }
            for call in calls { _ = try await call.value }
            for table in ["users", "devices", "delivery_attempts"] {
                let left = try await stack.query("SELECT FROM carillon.\(table) WHERE user_id = 'ada'")
                #expect(left.count == 0, "\(table)")
            }
        }
    }
}

/// `gateway import`.
@Suite(.timeLimit(.minutes(10)))
struct ImportTests {
    private static func run(
        _ stack: Stack,
        _ text: String,
        environment: [String: String] = [:]
    ) async throws -> (ChildProcess, ChildProcess.Exit) {
        let path = stack.directory.path + "/users.jsonl"
        try Data(text.utf8).write(to: URL(filePath: path))
        let process = try await stack.spawn("gateway", ["import", path], name: "import", environment: environment)
        return (process, try await process.waitForExit())
    }

    @Test("a clean file is imported in batches and may be imported again")
    func clean() async throws {
        try await Stack.with { stack in
            var lines: [String] = []
            for number in 0..<450 {
                let settings = #"{"zone":"Europe/Zurich","email":"u\#(number)@example.com"}"#
                let device = #"{"platform":"android","token":"t\#(number)","name":"phone"}"#
                let preference = #"{"type":"invoice_created","push":false}"#
                lines.append(
                    #"{"user_id":"u\#(number)","settings":\#(settings),"devices":[\#(device)],"#
                        + #""preferences":[\#(preference)],"topics":["news"]}"#
                )
            }
            let text = "\u{FEFF}" + lines.joined(separator: "\r\n") + "\n\n"
            for _ in 0..<2 {
                let (process, exit) = try await Self.run(stack, text)
                #expect(exit == .code(0))
                #expect(
                    process.output().contains(
                        "imported 450 users, 450 devices, 450 preferences, 450 subscriptions; 0 faulty lines"
                    )
                )
                for table in ["users", "devices", "preferences", "subscriptions", "user_settings"] {
                    let count = try await stack.query("SELECT count(*) FROM carillon.\(table)").first?.int8(0)
                    #expect(count == 450, "\(table)")
                }
            }
        }
    }

    @Test("a large import reports its progress without a terminal, a small one does not")
    func progress() async throws {
        try await Stack.with { stack in
            let lines = (0..<10_150).map { #"{"user_id":"u\#($0)"}"# }
            let (small, smallExit) = try await Self.run(stack, lines.prefix(450).joined(separator: "\n"))
            #expect(smallExit == .code(0))
            #expect(!small.errors().contains(" users of "))
            let (large, largeExit) = try await Self.run(stack, lines.joined(separator: "\n"))
            #expect(largeExit == .code(0))
            let told = large.errors().split(separator: "\n").filter { $0.contains(" users of ") }
            #expect(told == ["10000 users of 10000 lines"])
            #expect(large.output().contains("imported 10150 users"))
        }
    }

    @Test("an import that the database ends names the line up to which it stored, and batches have 60 s")
    func stopped() async throws {
        try await Stack.with { stack in
            _ = try await stack.query("ALTER TABLE carillon.users ADD CHECK (user_id <> 'u300')")
            // A statement has nine tenths of the time.
            _ = try await stack.query(
                "ALTER TABLE carillon.users ADD CHECK (current_setting('statement_timeout') = '54s')")
            let lines = (0..<450).map { #"{"user_id":"u\#($0)"}"# }
            let (process, exit) = try await Self.run(stack, lines.joined(separator: "\n"))
            #expect(exit == .code(1))
            #expect(
                process.errors().contains("the valid lines up to line 200 are stored; import the file again"),
                "\(process.errors())")
            #expect(try await stack.query("SELECT FROM carillon.users").count == 200)
        }
    }

    @Test("faults are reported by line, the other lines are imported, and the exit code is 65")
    func faults() async throws {
        try await Stack.with { stack in
            let long = String(repeating: "x", count: 1_100_000)
            let text = [
                #"{"user_id":"a"}"#, "{", #"{"user_id":"b","settings":{"zone":"Mars"}}"#, long, #"{}"#, "[1]",
                #"{"user_id":"c","devices":[{"platform":"palm"}],"colour":1}"#, #"{"user_id":"d"}"#,
            ].joined(separator: "\n")
            let (process, exit) = try await Self.run(stack, text)
            #expect(exit == .code(65))
            let errors = process.errors()
            for expected in [
                "line 2: is not valid JSON", "line 3: settings.zone: is not an IANA time zone, such as Europe/Berlin",
                "line 4: is longer than 1 MB",
                "line 5: user_id: is missing", "line 6: record: must be a JSON object",
                "line 7: devices[0].platform: must be one of ios, android, web",
                "line 7: colour: is unknown; use one of categories, devices, preferences, settings, topics, user_id",
            ] { #expect(errors.contains(expected), "\(expected) in \(errors)") }
            #expect(process.output().contains("imported 2 users"))
            #expect(process.output().contains("6 faulty lines"))
            let users = try await stack.query("SELECT user_id FROM carillon.users ORDER BY 1")
            let stored = try users.map { try $0.text(0) }
            #expect(stored == ["a", "d"])
        }
    }

    @Test("Web Push subscriptions outside the allowed origins are refused")
    func origins() async throws {
        try await Stack.with { stack in
            let subscription = JSONWriter.bytes(of: .string(stack.sandbox.subscription("ada").json))
            let token = String(decoding: subscription, as: UTF8.self)
            let line = #"{"user_id":"ada","devices":[{"platform":"web","token":\#(token)}]}"#
            let (refused, exit) = try await Self.run(
                stack, line, environment: ["WEBPUSH_ORIGINS": "https://*.push.apple.com"])
            #expect(exit == .code(65))
            #expect(refused.errors().contains("which is not among WEBPUSH_ORIGINS"))
            #expect(try await stack.query("SELECT FROM carillon.devices").count == 0)
            let (taken, _) = try await Self.run(stack, line, environment: ["WEBPUSH_ORIGINS": stack.sandbox.url])
            #expect(taken.output().contains("imported 1 user, 1 device, "))

            // An app's own list replaces the setting.
            let apps = "\(stack.directory.path)/apps.yaml"
            let key = stack.sandbox.vapidKeyPath
            try """
            apps:
              web:
                webpush: {key: \(key), subject: "mailto:ops@example.com", origins: "\(stack.sandbox.url)"}
            """.write(toFile: apps, atomically: true, encoding: .utf8)
            let named = #"{"user_id":"bob","devices":[{"platform":"web","app":"web","token":\#(token)}]}"#
            let (own, _) = try await Self.run(
                stack, named, environment: ["WEBPUSH_ORIGINS": "https://*.push.apple.com", "APPS": apps])
            #expect(own.output().contains("imported 1 user, 1 device, "), "\(own.errors())")
        }
    }

    @Test("disabled quiet hours keep their times")
    func quietHours() async throws {
        try await Stack.with { stack in
            let lines = ["false", "true", "null"].enumerated().map { number, enabled in
                let hours = #"{"start":"22:00","end":"07:00","enabled":\#(enabled)}"#
                return #"{"user_id":"u\#(number)","settings":{"quiet_hours":\#(hours)}}"#
            }
            let (process, exit) = try await Self.run(stack, lines.joined(separator: "\n"))
            #expect(exit == .code(0), "\(process.errors())")
            let rows = try await stack.query(
                "SELECT quiet_start::int4, quiet_end::int4, quiet_off FROM carillon.user_settings ORDER BY user_id")
            #expect(try rows.map { try $0.int4(0) } == [1_320, 1_320, 1_320])
            #expect(try rows.map { try $0.int4(1) } == [420, 420, 420])
            #expect(try rows.map { try $0.bool(2) } == [true, false, false])
            let gateway = try await stack.startGateway()
            let settings = try await gateway.call(.get, "/v1/settings", token: Stack.token(user: "u0"))
            #expect(settings.body["quiet_hours"] == .null)
        }
    }

    @Test("a missing file and a folder are named")
    func missing() async throws {
        try await Stack.with { stack in
            let folder = stack.directory.path
            for (path, reason) in [("/nowhere/users.jsonl", "No such file or directory"), (folder, "Is a directory")] {
                let process = try await stack.spawn("gateway", ["import", path], name: "import-\(reason.prefix(2))")
                #expect(try await process.waitForExit() == .code(66))
                #expect(process.errors().contains("gateway: \(path): \(reason)"))
            }
        }
    }
}
