// Carillon · RestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients
@testable import HTTP

/// The REST calls of users and services.
@Suite(.timeLimit(.minutes(10)))
struct RestTests {
    @Test("the inbox lists, pages, marks read and deletes")
    func inbox() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let token = Stack.token(user: "ada")
            for number in 0..<5 {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "n\(number)")])
            }
            try await eventually("all are listed") {
                try await gateway.call(.get, "/v1/notifications", token: token).body["total"]?.integer == 5
            }
            let first = try await gateway.call(.get, "/v1/notifications?limit=2", token: token)
            let titles = first.body["notifications"]?.array?.compactMap { $0["title"]?.string }
            #expect(titles == ["n4", "n3"])
            let cursor = try #require(first.body["next_cursor"]?.string)
            let second = try await gateway.call(.get, "/v1/notifications?limit=3&cursor=\(cursor)", token: token)
            #expect(second.body["notifications"]?.array?.compactMap { $0["title"]?.string } == ["n2", "n1", "n0"])
            #expect(second.body["next_cursor"] == .null)

            let id = try #require(first.body["notifications"]?.array?.first?["id"]?.string)
            #expect(
                try await gateway.call(.post, "/v1/notifications/\(id)/read", token: token).body["unread"]?.integer == 4
            )
            let again = try await gateway.call(.post, "/v1/notifications/\(id)/read", token: token)
            #expect(again.body["changed"]?.integer == 0)
            #expect(again.body["unread"]?.integer == 4)
            #expect(try await gateway.call(.post, "/v1/notifications/\(id)/opened", token: token).status == 204)
            let unread = try await gateway.call(.get, "/v1/notifications?unread_only=true", token: token)
            #expect(unread.body["notifications"]?.array?.count == 4)
            let all = try await gateway.call(.post, "/v1/notifications/read", token: token, json: #"{"all":true}"#)
            #expect(all.body["unread"]?.integer == 0)
            #expect(try await gateway.call(.delete, "/v1/notifications/\(id)", token: token).status == 200)
            let rest = try await gateway.call(.delete, "/v1/notifications", token: token)
            #expect(rest.body["changed"]?.integer == 4)
            let count = try await gateway.call(.get, "/v1/notifications/unread-count", token: token)
            #expect(count.body["total"]?.integer == 0)
        }
    }

    @Test("each call with the id of another user's notification or device gets 404 and changes nothing")
    func foreignIDs() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["USER_CALLS_PER_SECOND": "0"])
            let dispatcher = try await stack.startDispatcher()
            let device = try await gateway.register(user: "ada", platform: "android", token: "phone")
            for title in ["archived", "listed"] {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
            }
            try await eventually("both are stored and routed") {
                let statuses = try await stack.statuses(user: "ada").values
                return statuses.count == 2 && !statuses.contains("pending")
            }
            try await dispatcher.stop()
            let found = try await stack.query("SELECT id::text FROM carillon.notifications ORDER BY title")
            let notifications = try found.map { try $0.text(0) }
            let archived = try #require(notifications.first)
            let ada = Stack.token(user: "ada")
            #expect(try await gateway.call(.post, "/v1/notifications/\(archived)/archive", token: ada).status == 200)
            func rows() async throws -> [String] {
                let rows = try await stack.query(
                    """
                    SELECT to_jsonb(n)::text FROM carillon.notifications n
                    UNION ALL SELECT to_jsonb(a)::text FROM carillon.archived a
                    UNION ALL SELECT to_jsonb(d)::text FROM carillon.devices d
                    UNION ALL SELECT to_jsonb(s)::text FROM carillon.schedules s
                    UNION ALL SELECT to_jsonb(i)::text FROM carillon.inboxes i WHERE user_id = 'ada'
                    ORDER BY 1
                    """)
                return try rows.map { try $0.text(0) }
            }
            let before = try await rows()

            let eve = Stack.token(user: "eve")
            let bodies = [
                "PUT /v1/devices/{id}": #"{"enabled":false}"#,
                "POST /v1/notifications/{id}/actions": #"{"action":"approve"}"#,
                "POST /v1/notifications/{id}/snooze": #"{"until":"\#(Schedules.later(.seconds(3_600)))"}"#,
            ]
            let document = try await gateway.call(.get, "/openapi.json", token: nil).body
            var calls = 0
            for path in document["paths"]?.object ?? [] where path.key.contains("{id}") {
                for operation in path.value.object ?? [] where operation.value["x-scope"] == nil {
                    guard let method = TransferRequest.Method(rawValue: operation.key.uppercased()) else { continue }
                    let name = "\(method.rawValue) \(path.key)"
                    let body = bodies[name]
                    #expect((body == nil) == (operation.value["requestBody"] == nil), "give \(name) a valid body")
                    for id in path.key.hasPrefix("/v1/devices/") ? [device] : notifications {
                        let answer = try await gateway.call(
                            method, path.key.replacing("{id}", with: id), token: eve, json: body)
                        #expect(answer.status == 404, "\(name): \(answer.status)")
                        calls += 1
                    }
                }
            }
            #expect(calls >= 22)
            #expect(try await rows() == before)
        }
    }

    @Test("a bad request gets a problem document that names the field")
    func problems() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let user = Stack.token(user: "ada")
            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await gateway.call(.get, "/v1/notifications?limit=0", token: user).status == 400)
            #expect(try await gateway.call(.get, "/v1/notifications?limit=x", token: user).status == 400)
            #expect(try await gateway.call(.get, "/v1/notifications/nonsense", token: user).status == 404)
            let device = try await gateway.call(.post, "/v1/devices", token: user, json: #"{"platform":"palm"}"#)
            #expect(device.status == 422)
            let fields = Set(device.body["errors"]?.array?.compactMap { $0["field"]?.string } ?? [])
            #expect(fields == ["platform", "token"])
            #expect(try await gateway.call(.post, "/v1/devices", token: user, json: "{").status == 400)
            #expect(try await gateway.call(.post, "/v1/jobs", token: user, json: "{}").status == 403)
            let job = try await gateway.call(
                .post, "/v1/jobs", token: service, json: #"{"user":"ada","type":"unheard_of","colour":1}"#)
            #expect(job.status == 422)
            let zone = try await gateway.call(.put, "/v1/settings", token: user, json: #"{"zone":"Mars/Olympus"}"#)
            #expect(zone.status == 422)
            #expect(try await gateway.call(.get, "/v1/nowhere", token: user).status == 404)

            // No dispatcher takes test sends.
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            let waiting: [RedisArgument] = Array(repeating: "{}", count: 100)
            try await stack.connection.send(["LPUSH", "carillon:test-sends"] + waiting)
            let test = try await gateway.call(
                .post, "/v1/test-sends", token: service, json: #"{"user":"ada","title":null,"data":null}"#)
            #expect(test.status == 503 && test.header("retry-after") == "5")
        }
    }

    @Test("jobs over HTTP respect preferences, and an Idempotency-Key makes a repeat harmless")
    func jobs() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let user = Stack.token(user: "ada")
            let service = Stack.token(user: "backend", scope: .service)
            let quiet = try await gateway.call(
                .put,
                "/v1/preferences",
                token: user,
                json: #"{"types":[{"type":"invoice_created","in_app":false}]}"#
            )
            #expect(quiet.status == 200)
            let body = #"{"user":"ada","type":"payment_received","title":"over HTTP","data":{"a":1}}"#
            // A member that is null is left out.
            for body in [body, body, body.replacing("{\"user\"", with: "{\"id\":null,\"user\"")] {
                let answer = try await gateway.call(
                    .post, "/v1/jobs", token: service, json: body, headers: [("idempotency-key", "once")])
                #expect(answer.status == 202)
                #expect(answer.body["id"]?.string == "once")
                #expect(answer.body["lane"]?.string == "critical")
            }
            let refused = #"{"user":"ada","type":"invoice_created","title":"unwanted"}"#
            #expect(try await gateway.call(.post, "/v1/jobs", token: service, json: refused).status == 202)
            try await eventually("one is in the inbox, one suppressed") {
                try await stack.statuses(user: "ada") == ["over HTTP": "sent", "unwanted": "suppressed"]
            }
            let list = try await gateway.call(.get, "/v1/notifications", token: user)
            #expect(list.body["notifications"]?.array?.compactMap { $0["title"]?.string } == ["over HTTP"])
        }
    }
}

/// The API describes itself and refuses what it does not describe.
@Suite(.timeLimit(.minutes(20)))
struct DescriptionTests {
    /// The descriptions of the API and of the compatibility paths.
    static let documents = (canonical: "/openapi.json", compatibility: "/openapi/compatibility.json")

    @Test("the API descriptions are public")
    func document() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let cases = [
                (Self.documents.canonical, "/v1/notifications"),
                (Self.documents.compatibility, "/api/notifications"),
            ]
            for (path, described) in cases {
                let answer = try await gateway.call(.get, path, token: nil)
                #expect(answer.status == 200, "\(path)")
                #expect(answer.type == "application/json", "\(path)")
                #expect(answer.body["openapi"]?.string == "3.1.0", "\(path)")
                #expect(answer.body["paths"]?[described]?["get"] != nil, "\(path)")
            }
        }
    }

    @Test("each call refuses a query parameter that it does not have")
    func unknownParameters() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "root", scope: .admin)
            let document = try await gateway.call(.get, Self.documents.canonical, token: nil).body
            let id = Identifier.random().description
            var count = 0
            for path in document["paths"]?.object ?? [] {
                let place = path.key.replacing(#/\{[^}]*\}/#, with: id)
                for operation in path.value.object ?? [] where operation.value["security"] == nil {
                    let method = try #require(TransferRequest.Method(rawValue: operation.key.uppercased()))
                    let answer = try await gateway.call(method, "\(place)?colour=1", token: token)
                    #expect(answer.status == 400 && answer.faults.contains("colour"), "\(method) \(path.key)")
                    count += 1
                }
            }
            #expect(count > 60)
        }
    }

    @Test("an unknown method gets 405 with the allowed ones, an unknown path 404")
    func methods() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let cases: [(TransferRequest.Method, String, String)] = [
                (.put, "/v1/notifications", "DELETE, GET, HEAD"), (.get, "/v1/notifications/read", "POST"),
                (.post, "/v1/settings", "GET, HEAD, PUT"), (.delete, "/healthz", "GET, HEAD"),
            ]
            for (method, path, allowed) in cases {
                let answer = try await gateway.call(method, path, token: token)
                #expect(answer.status == 405, "\(method) \(path)")
                #expect(answer.header("allow") == allowed)
                #expect(answer.type == "application/problem+json")
            }
            #expect(try await gateway.call(.get, "/v1/nowhere", token: token).status == 404)
            for path in ["/metrics", "/readyz", "/healthz"] {
                #expect(try await gateway.call(.get, path, token: nil).status == 200)
                for spelling in ["\(path)/", "/\(path)", "\(path)//", "//\(path)/"] {
                    #expect(try await gateway.call(.get, spelling, token: nil).status == 404, "\(spelling)")
                }
            }
            #expect(try await gateway.call(.get, "/v1//notifications", token: token).status == 404)
            // Sent over a raw socket, because the client has none of these methods.
            for (method, path, allowed) in [
                ("TRACE", "/v1/notifications", "DELETE, GET, HEAD"), ("TRACE", "/v1/socket", "GET"),
                ("TRACE", "/v1/stream", "GET"), ("TRACE", "/hubs/notifications", "GET, POST, DELETE, OPTIONS"),
                ("TRACE", "/healthz", "GET, HEAD"), ("PROPFIND", "/v1/notifications/x", "DELETE, GET, HEAD"),
                ("HEAD", "/v1/notifications/read", "POST"), ("OPTIONS", "/v1/settings", "GET, HEAD, PUT"),
                ("OPTIONS", "/v1/nowhere", nil),
            ] as [(String, String, String?)] {
                let client = try await TestSocket.connect(port: gateway.port)
                let fields = "host: x\r\nauthorization: Bearer \(token)\r\n"
                try await client.send(raw: Array("\(method) \(path) HTTP/1.1\r\n\(fields)\r\n".utf8))
                try await eventually("it is answered") { client.status != nil }
                #expect(client.status == (allowed == nil ? 404 : 405), "\(method) \(path)")
                let field = allowed.map { "allow: \($0.lowercased())\r\n" }
                #expect(field.map { client.head.lowercased().contains($0) } != false, "\(client.head)")
                await client.close()
            }
        }
    }

    @Test("a refused HEAD has the length of the body but not the body, so the next answer follows its head")
    func refusedHead() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            func request(_ method: String, _ path: String) -> String {
                "\(method) \(path) HTTP/1.1\r\nhost: x\r\nauthorization: Bearer \(token)\r\n\r\n"
            }
            for (path, status) in [("/v1/notifications/read", 405), ("/v1/nowhere", 404), ("/rest/v1/nowhere", 404)] {
                let client = try await TestSocket.connect(port: gateway.port)
                try await client.send(raw: Array((request("HEAD", path) + request("GET", "/healthz")).utf8))
                try await eventually("both are answered") { client.head.contains("HTTP/1.1 200 ") }
                let answers = client.head
                let end = try #require(answers.firstRange(of: "\r\n\r\n"))
                let head = answers[..<end.lowerBound].lowercased()
                #expect(client.status == status, "\(path)")
                #expect(head.contains("\r\ncontent-length: ") && !head.contains("\r\ncontent-length: 0"))
                #expect(answers[end.upperBound...].hasPrefix("HTTP/1.1 200 "), "\(answers)")
                await client.close()
            }
        }
    }

    @Test("the detail of a refusal names the invalid fields, or the kind of thing that does not exist")
    func details() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = Stack.token(user: "ada")
            let admin = Stack.token(user: "operator", scope: .admin)
            let zone = try await gateway.call(.put, "/v1/settings", token: ada, json: #"{"zone":"Europe/Zurch"}"#)
            #expect(zone.body["detail"]?.string == "zone: is not an IANA time zone, such as Europe/Berlin")
            let jobs = "[" + Array(repeating: "{}", count: 12).joined(separator: ",") + "]"
            let many = try await gateway.call(.post, "/v1/jobs", token: admin, json: jobs)
            let detail = try #require(many.body["detail"]?.string)
            #expect(detail.hasPrefix("[0].user: give one of user, users, topic, all; [0].type: is missing; [1].user"))
            #expect(many.faults.count == 24 && detail.hasSuffix("; and 14 more"))
            let timeless = try await gateway.call(
                .post, "/v1/schedules", token: admin, json: #"{"job":{"user":"ada","type":"invoice_created"}}"#)
            #expect(timeless.body["detail"]?.string == "cron: give one of cron, at")

            let id = Identifier.random().description
            let cases = [
                ("/v1/notifications/\(id)", "there is no such notification"),
                ("/v1/users/nobody", "there is no such user"),
                ("/v1/jobs/nothing", "there is no such job, or no dispatcher has stored it yet"),
                ("/v1/schedules/\(id)", "there is no such schedule"),
                ("/v1/webhooks/nonsense", "there is no such webhook"),
                ("/v1/admin/users/nobody", "there is no such user"),
                ("/v1/admin/dead-letters/999", "there is no such dead letter"),
                ("/v1/admin/notifications/\(id)/trace", "there is no such notification"),
                ("/v1/nowhere", "there is no such path; see /openapi.json"),
                ("/v1//notifications", "there is no such path; see /openapi.json"),
            ]
            for (path, detail) in cases {
                let answer = try await gateway.call(.get, path, token: admin)
                #expect(answer.status == 404 && answer.body["detail"]?.string == detail, "\(path)")
            }
            let device = try await gateway.call(.delete, "/v1/devices/\(id)", token: ada)
            #expect(device.body["detail"]?.string == "there is no such device")
        }
    }

    @Test("compatibility paths refuse unknown methods and paths in the form that their clients read")
    func compatibleRefusals() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let cases: [(TransferRequest.Method, String, Int, String?)] = [
                (.put, "/api/notifications", 405, nil), (.get, "/api/push/register/", 405, nil),
                (.patch, "/api/push/apns/", 405, nil), (.put, "/api/v1/devices", 405, nil),
                (.get, "/device-token/register", 405, nil),
                (.put, "/rest/v1/user_push_tokens", 405, "PGRST117"),
                (.get, "/api/notifications/a/b/c", 404, nil), (.get, "/rest/v1/profiles", 404, "PGRST205"),
            ]
            for (method, path, status, code) in cases {
                let answer = try await gateway.call(method, path, token: token)
                #expect(answer.status == status, "\(method) \(path)")
                #expect(answer.type == "application/problem+json")
                #expect((answer.header("allow") != nil) == (status == 405))
                let detail = try #require(answer.body["detail"]?.string)
                #expect(answer.body["error"]?.string == detail && answer.body["message"]?.string == detail)
                #expect(answer.body["code"]?.string == code)
            }
        }
    }

    @Test("a faulty call that posts jobs names each fault")
    func jobs() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "backend", scope: .service)
            let key = [(name: "idempotency-key", value: "k")]
            let empty = try await gateway.call(.post, "/v1/jobs", token: token, json: "[]")
            #expect(empty.status == 400)
            #expect(empty.faults == ["jobs"])
            let batch = try await gateway.call(.post, "/v1/jobs", token: token, json: "[{}]", headers: key)
            #expect(batch.status == 400)
            #expect(batch.faults == ["Idempotency-Key"])
            for id in [#""other""#, "7"] {
                let job = #"{"id":\#(id),"user":"ada","type":"invoice_created","title":"t"}"#
                let differs = try await gateway.call(.post, "/v1/jobs", token: token, json: job, headers: key)
                #expect(differs.status == 422 && differs.faults == ["id"], "\(id)")
            }
            let element = try await gateway.call(.post, "/v1/jobs", token: token, json: "[{},5]")
            #expect(element.status == 422)
            #expect(element.faults == ["[0].user", "[0].type", "[1].job"])
            let types = #"{"user":5,"type":"invoice_created","title":false,"body":{"en":"Hi"},"data":"{}"}"#
            let untyped = try await gateway.call(.post, "/v1/jobs", token: token, json: "[\(types)]")
            #expect(untyped.status == 422 && untyped.faults == ["[0].title", "[0].body", "[0].data"])
            #expect(untyped.body["detail"]?.string?.hasPrefix("[0].title: must be a string; ") == true)
            #expect(try await gateway.call(.post, "/v1/jobs", token: token).status == 400)
            for path in ["/v1/jobs", "/v1/users/ada", "/v1/schedules"] {
                let method: TransferRequest.Method = path == "/v1/users/ada" ? .put : .post
                #expect(try await gateway.call(method, path, token: token, json: "5").status == 400, "\(path)")
            }
            #expect(try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0)
        }
    }

    @Test(
        "calls generated from the description are answered as described, and never with a 5xx",
        .enabled(if: PythonClient.has("schemathesis")),
        arguments: [
            (nil, Self.documents.canonical), (.service, Self.documents.canonical), (.admin, Self.documents.canonical),
            (nil, Self.documents.compatibility), (.service, Self.documents.compatibility),
        ] as [(Caller.Scope?, String)])
    func schema(scope: Caller.Scope?, path: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["USER_CALLS_PER_SECOND": "0"])
            // A name that no generated call uses, so its tokens are never revoked.
            let token = Stack.token(user: "the-caller-of-this-test", scope: scope)
            let process = try await ChildProcess.spawn(
                // schemathesis writes a folder into its working directory.
                "env",
                [
                    "-C", stack.directory.path, PythonClient.interpreter, "-m", "schemathesis.cli", "run",
                    "http://127.0.0.1:\(gateway.port)\(path)",
                    "--header", "Authorization: Bearer \(token)", "--seed", "1", "--max-examples",
                    // Most compatibility paths are for users only; a service gets the same
                    // refusals.
                    path == Self.documents.canonical ? "5" : scope == nil ? "4" : "1",
                    "--phases", "coverage,fuzzing", "--suppress-health-check", "all", "--generation-database", "none",
                    // Without a dispatcher, a test send to a known device is answered after 40 s.
                    "--exclude-path", "/v1/test-sends",
                    "--checks",
                    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
                ],
                name: "schemathesis", directory: stack.directory.path)
            let exit = try await process.waitForExit(within: .seconds(400))
            #expect(exit == .code(0), "\(process.output().suffix(4_000))")
        }
    }
}
