// Carillon · ScheduleRestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// `/v1/schedules`, and the commands for schedules.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ScheduleRestTests {
    @Test("schedules are created, listed, found and cancelled, only by services, and faults name their fields")
    func rest() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let service = try await Stack.token(user: "app", scope: .service)
            let at = Schedules.later(.seconds(3_600))
            let json = #"""
                {"id":"0190b5a2-0000-7000-8000-000000000001","at":"\#(at)",
                 "job":{"user":"ada","type":"invoice_created","title":"x","org":"o"}}
                """#
            let created = try await gateway.call(.post, "/v1/schedules", token: service, json: json)
            #expect(created.status == 201)
            #expect(created.body["job"]?["title"]?.string == "x")
            let again = try await gateway.call(.post, "/v1/schedules", token: service, json: json)
            #expect(again.status == 200)
            #expect(again.body["job_id"] == created.body["job_id"])
            let other = json.replacingOccurrences(of: #""x""#, with: #""y""#)
            #expect(try await gateway.call(.post, "/v1/schedules", token: service, json: other).status == 409)

            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("id", "s1"), ("deliver_at", at)])
            try await eventually("both are listed") {
                let page = try await gateway.call(.get, "/v1/schedules", token: service)
                return page.body["schedules"]?.array?.count == 2
            }
            let page = try await gateway.call(.get, "/v1/schedules?limit=1", token: service)
            #expect(page.body["schedules"]?.array?.count == 1)
            let cursor = try #require(page.body["next_cursor"]?.string)
            let rest = try await gateway.call(.get, "/v1/schedules?limit=1&cursor=\(cursor)", token: service)
            #expect(rest.body["schedules"]?.array?.count == 1)
            #expect(rest.body["next_cursor"] == .null)
            let own = try await gateway.call(.get, "/v1/schedules?org=o", token: service)
            #expect(own.body["schedules"]?.array?.map { $0["id"] } == [created.body["id"]])

            let user = try await Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/schedules", token: user).status == 403)
            #expect(try await gateway.call(.get, "/v1/schedules/x", token: user).status == 403)
            #expect(try await gateway.call(.delete, "/v1/schedules/x", token: user).status == 403)
            #expect(try await gateway.call(.post, "/v1/schedules", token: user, json: json).status == 403)
            for (json, fields) in Self.faults {
                let answer = try await gateway.call(.post, "/v1/schedules", token: service, json: json)
                #expect(answer.status == 422, "\(json)")
                #expect(answer.faults == fields, "\(json)")
            }

            // The commands show the same schedules.
            let list = try await stack.spawn("dispatcher", ["schedules", "list", "--json"], name: "list")
            #expect(try await list.waitForLine(#"{"id":"0190b5a2-0000-7000-8000-000000000001""#).isEmpty == false)
            #expect(try await list.waitForExit() == .code(0))
            let table = try await stack.spawn("dispatcher", ["schedules", "list"], name: "table")
            #expect(try await table.waitForLine("ID ").contains("STATE"))
            let id = "0190b5a2-0000-7000-8000-000000000001"
            let cancel = try await stack.spawn("dispatcher", ["schedules", "cancel", id], name: "cancel")
            _ = try await cancel.waitForLine("cancelled \(id)")
            #expect(try await cancel.waitForExit() == .code(0))
            #expect(try await gateway.call(.delete, "/v1/schedules/\(id)", token: service).status == 404)
            #expect(try await Schedules.count(stack) == 1)
        }
    }

    private static let faults: [(String, Set<String>)] = [
        (#"{}"#, ["job"]),
        (#"{"job":{"user":"u","type":"invoice_created"}}"#, ["cron"]),
        (#"{"cron":"@daily","job":{"user":"u","type":"invoice_created"}}"#, ["zone"]),
        (#"{"cron":"0 0 30 2 *","zone":"UTC","job":{"user":"u","type":"invoice_created"}}"#, ["cron"]),
        (#"{"cron":"@daily","zone":"Mars","job":{"user":"u","type":"invoice_created"}}"#, ["zone"]),
        (#"{"cron":"@hourly","zone":"recipient","job":{"user":"u","type":"invoice_created"}}"#, ["cron"]),
        (#"{"at":"2020-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created"}}"#, ["at"]),
        (#"{"at":"soon","zone":"UTC","job":{"user":"u","type":"invoice_created"}}"#, ["at", "zone"]),
        (#"{"at":"2099-01-01T00:00:00Z","job":{"user":"u","type":"nothing"}}"#, ["job.type"]),
        (
            #"{"at":"2099-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created","deliver_local":"08:00"}}"#,
            ["job.deliver_local"]
        ),
        (#"{"cron":"@daily","zone":"UTC","job":{"id":"a","user":"u","type":"invoice_created"}}"#, ["job.id"]),
        (
            #"{"cron":"@daily","zone":"UTC","ends_at":"2020-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created"}}"#,
            ["ends_at"]
        ),
        (#"{"id":"7","at":"2099-01-01T00:00:00Z","x":1,"job":{"user":"u","type":"invoice_created"}}"#, ["x", "id"]),
    ]
}
