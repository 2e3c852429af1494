// Carillon · InterfaceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// The REST calls of users and services.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct InterfaceTests {
    @Test("the inbox lists, pages, marks read and deletes, and hides other users' notifications")
    func inbox() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let token = try await Stack.token(user: "ada")
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
            let other = try await Stack.token(user: "eve")
            #expect(try await gateway.call(.get, "/v1/notifications/\(id)", token: other).status == 404)
            #expect(try await gateway.call(.post, "/v1/notifications/\(id)/read", token: other).status == 404)
            #expect(try await gateway.call(.delete, "/v1/notifications/\(id)", token: other).status == 404)

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

    @Test("a bad request gets a problem document that names the field")
    func problems() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let user = try await Stack.token(user: "ada")
            let service = try await Stack.token(user: "backend", scope: .service)
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
        }
    }

    @Test("jobs over HTTP respect preferences, and an Idempotency-Key makes a repeat harmless")
    func jobs() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let user = try await Stack.token(user: "ada")
            let service = try await Stack.token(user: "backend", scope: .service)
            let quiet = try await gateway.call(
                .put,
                "/v1/preferences",
                token: user,
                json: #"{"types":[{"type":"invoice_created","in_app":false}]}"#
            )
            #expect(quiet.status == 200)
            let body = #"{"user":"ada","type":"payment_received","title":"over HTTP","data":{"a":1}}"#
            for _ in 0..<2 {
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
