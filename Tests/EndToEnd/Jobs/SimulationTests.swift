// Carillon · SimulationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import Storage
import Support
import Testing

@testable import HTTP

/// Simulations predict what a job would do.
@Suite(.timeLimit(.minutes(10)))
struct SimulationTests {
    @Test("a simulation uses changed time-zone data without a restart")
    func changedLaw() async throws {
        try await Stack.with { stack in
            let zones = try TemporaryDirectory("zones")
            let folder = URL(filePath: zones.path)
            try FileManager.default.createDirectory(
                at: folder.appending(path: "Asia"), withIntermediateDirectories: true)
            func install(_ source: String, as name: String) throws {
                try Data(contentsOf: URL(filePath: "/usr/share/zoneinfo/\(source)"))
                    .write(to: folder.appending(path: name), options: .atomic)
            }
            try install("UTC", as: "UTC")
            try install("Asia/Tokyo", as: "Asia/Tokyo")
            let gateway = try await stack.startGateway(environment: ["TZDIR": zones.path])
            try await gateway.set(#"{"zone":"Asia/Tokyo"}"#, of: "ada")
            let admin = Stack.token(user: "root", scope: .admin)
            func until() async throws -> String? {
                let answer = try await gateway.call(
                    .post, "/v1/admin/simulate", token: admin,
                    json: #"""
                        {"user":"ada","job":{"type":"invoice_created","deliver_local":"2099-01-01T08:00"}}
                        """#)
                let step = answer.body["steps"]?.array?.first { $0["step"]?.string == "schedule" }
                return step?["until"]?.string.map { String($0.prefix(16)) }
            }
            #expect(try await until() == "2098-12-31T23:00")
            // An hour and three quarters earlier.
            try install("Asia/Kathmandu", as: "Asia/Tokyo")
            gateway.process.send(SIGHUP)
            try await eventually("the new data are used") {
                try await until() == "2099-01-01T02:15"
            }
        }
    }

    @Test("a simulation uses the user's language and current caps, and changes no count")
    func capsAndText() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  offer:
                    severity: info
                    delivery: push
                    cap: {count: 2, per: 30m}
                    templates:
                      en: {title: "{{n}} offers", body: "For you"}
                      de: {title: "{{n}} Angebote", body: "Für Sie"}
                """
            )
            let gateway = try await stack.startBoth(environment: environment)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await gateway.set(#"{"locale":"de-CH"}"#, of: "ada")
            let admin = Stack.token(user: "root", scope: .admin)
            func simulate(_ job: String) async throws -> Gateway.Answer {
                try await gateway.call(
                    .post, "/v1/admin/simulate", token: admin, json: #"{"user":"ada","job":\#(job)}"#)
            }
            let job = #"{"type":"offer","vars":{"n":3}}"#
            for count in 1...2 {
                for _ in 0..<3 {
                    let answer = try await simulate(job)
                    #expect(answer.status == 200)
                    #expect(answer.body["title"]?.string == "3 Angebote")
                    #expect(answer.body["body"]?.string == "Für Sie")
                    #expect(answer.body["locale"]?.string == "de-CH")
                    #expect(answer.body["cap"] == .null)
                    #expect(answer.body["steps"]?.texts("step") == ["store", "push"])
                }
                try await stack.append([("user", "ada"), ("type", "offer"), ("vars", #"{"n":\#(count)}"#)])
                try await eventually("it is pushed") { stack.pushed()["ada-phone"]?.count == count }
            }
            let capped = try await simulate(job)
            #expect(capped.body["cap"]?.string == "type")
            #expect(capped.body["steps"]?.texts("step") == ["store", "hold_back", "settle"])
            #expect(capped.body["steps"]?.array?[1]["reason"]?.string == "capped_by_type")
            // The cap's time is over when quiet hours end.
            try await gateway.set(QuietNow.settings, of: "ada")
            let quiet = try await simulate(job)
            #expect(quiet.body["cap"] == .null)
            #expect(quiet.body["steps"]?.texts("step") == ["store", "postpone", "push"])
            let faulty = try await simulate(#"{"type":"offer","vars":{}}"#)
            #expect(faulty.status == 422)
            #expect(faulty.faults == ["job.vars.n"])
            let untyped = try await simulate(#"{"type":"offer","vars":"{\"n\":3}","sound":true}"#)
            #expect(untyped.status == 422 && untyped.faults == ["job.vars", "job.sound"])
        }
    }

    @Test("a simulation of a scheduled or digest job begins with the wait and continues from its end")
    func holds() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  offer: {severity: info, delivery: push}
                  comment: {severity: info, delivery: push, digest: {window: 1h, singles: 1}}
                """
            )
            let gateway = try await stack.startGateway(environment: environment)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await gateway.set(#"{"zone":"Europe/Berlin"}"#, of: "ada")
            let admin = Stack.token(user: "root", scope: .admin)
            func steps(_ fields: String, type: String = "offer", at: String) async throws -> [JSONValue] {
                let job = #"{"type":"\#(type)","title":"x",\#(fields)}"#
                let answer = try await gateway.call(
                    .post, "/v1/admin/simulate", token: admin,
                    json: #"{"user":"ada","job":\#(job),"at":"\#(at)","presence":"offline"}"#)
                #expect(answer.status == 200, "\(answer.body)")
                #expect(answer.body["at"]?.string == at)
                return answer.body["steps"]?.array ?? []
            }
            let arrival = "2026-11-20T10:00:00.000Z"
            let due = "2026-11-21T08:00:00.000Z"
            for (field, what) in [
                (#""deliver_at":"2026-11-21T08:00:00Z""#, "deliver_at"),
                (#""deliver_local":"2026-11-21T09:00""#, "deliver_local"),
            ] {
                let found = try await steps(field, at: arrival)
                #expect(found.compactMap { $0["step"]?.string } == ["schedule", "store", "push"])
                #expect(found.first?["what"]?.string == what)
                #expect(found.first?["until"]?.string == due)
                #expect(found.compactMap { $0["at"]?.string } == [arrival, due, due])
                #expect(found.last?["devices"]?.string?.hasPrefix("fcm ") == true)
            }
            // A time in the past is sent at once.
            let late = try await steps(#""deliver_at":"2026-11-19T08:00:00Z""#, at: arrival)
            #expect(late.compactMap { $0["step"]?.string } == ["store", "push"])
            // A local time on a past day is the job's time, so it may have expired.
            let past = try await steps(#""deliver_local":"2026-11-18T09:00""#, at: arrival)
            #expect(past.compactMap { $0["step"]?.string } == ["store"])
            #expect(past.first?["reason"]?.string == "expired")

            let replacing = try await steps(#""collapse_key":"score""#, at: arrival)
            #expect(replacing.compactMap { $0["step"]?.string } == ["replace", "store", "push"])
            #expect(replacing.first?["what"]?.string == "score")

            // The first of a window is sent alone; the next one waits for the window's end.
            let first = try await steps(#""digest":"post""#, type: "comment", at: arrival)
            #expect(first.compactMap { $0["step"]?.string } == ["store", "push"])
            try await stack.query(
                """
                INSERT INTO carillon.digests (id, user_id, org_id, type, key, lane, due_at, last_at, count)
                VALUES (gen_random_uuid(), 'ada', '', 'comment', 'post', 'normal', '2026-11-20T10:30:00Z',
                    '2026-11-20T10:30:00Z', 1)
                """
            )
            let next = try await steps(#""digest":"post""#, type: "comment", at: arrival)
            #expect(next.compactMap { $0["step"]?.string } == ["gather", "store", "push"])
            #expect(next.first?["until"]?.string == "2026-11-20T10:30:00.000Z")
            #expect(next.last?["at"]?.string == "2026-11-20T10:30:00.000Z")
            #expect(try await stack.query("SELECT 1 FROM carillon.notifications").isEmpty)
        }
    }

    @Test("a device of a provider that no dispatcher has is shown as unreachable, and mail alike")
    func unreachable() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  payment_received: {severity: info, delivery: push}
                  security: {channels: [in_app, email], required: true}
                """
            )
            let gateway = try await stack.startGateway(environment: environment)
            let registered = try await gateway.call(
                .post, "/v1/devices", token: Stack.token(user: "ada"),
                json: #"{"platform":"android","token":"ada-phone","name":"phone","app":"nowhere"}"#)
            #expect(registered.status == 201)
            let admin = Stack.token(user: "root", scope: .admin)
            func simulate() async throws -> JSONValue {
                try await gateway.call(
                    .post, "/v1/admin/simulate", token: admin,
                    json: #"{"user":"ada","job":{"type":"payment_received","title":"x"}}"#
                ).body
            }
            func mail() async throws -> String? {
                let answer = try await gateway.call(
                    .post, "/v1/admin/simulate", token: admin,
                    json: #"{"user":"ada","job":{"type":"security","title":"x"}}"#)
                return answer.body["channels"]?.array?.first { $0["channel"]?.string == "email" }?["reason"]?.string
            }
            // No dispatcher has announced its providers yet.
            let board = Live(stack.connection).providerBoard
            try await board.publish([], dispatcher: "killed", now: Schedules.now() - .seconds(21))
            #expect(try await simulate()["reachable"]?.integer == 1)
            #expect(try await mail() == "no_address")
            let announced = try await stack.connection.send("HKEYS", "carillon:providers").strings()
            #expect(announced == ["killed"], "a simulation removes nothing")
            try await gateway.set(#"{"email":"ada@example.com"}"#, of: "ada")
            #expect(try await mail() == "due")
            _ = try await stack.startDispatcher(environment: environment)
            try await eventually("the dispatcher has announced its providers") {
                try await simulate()["reachable"]?.integer == 0
            }
            let answer = try await simulate()
            #expect(answer["devices"]?.integer == 1)
            let device = answer["push_devices"]?.array?.first
            #expect(device?["provider"]?.string == "fcm")
            #expect(device?["reachable"]?.bool == false)
            #expect(answer["steps"]?.texts("step").contains("push") != true)
            #expect(try await mail() == "no_provider")
        }
    }

    @Test("a user outside the job's audience gets nothing, with the reason")
    func audiences() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let admin = Stack.token(user: "root", scope: .admin)
            func simulate(_ audience: String) async throws -> (reasons: Set<String>, steps: [String]) {
                // Members that are null have their defaults.
                let json = #"""
                    {"user":"ada","job":{"type":"payment_received","title":"x",\#(audience)},"at":null,
                     "presence":null,"proven":null}
                    """#
                let answer = try await gateway.call(.post, "/v1/admin/simulate", token: admin, json: json)
                #expect(answer.status == 200, "\(answer.body)")
                let unused = answer.body["channels"]?.array?.filter { $0["used"]?.bool == false } ?? []
                return (Set(unused.compactMap { $0["reason"]?.string }), answer.body["steps"]?.texts("step") ?? [])
            }
            for (audience, reason) in [
                (#""users":["bob","cleo"]"#, "not_named"), (#""user":"bob""#, "not_named"),
                (#""topic":"releases""#, "not_subscribed"),
                (#""all":true,"except":["bob","ada"]"#, "excepted"),
                (#""users":["ada"],"except":["ada"]"#, "excepted"),
            ] {
                let answer = try await simulate(audience)
                #expect(answer.reasons == [reason], "\(audience)")
                #expect(answer.steps.isEmpty, "\(audience)")
            }
            try await stack.query("INSERT INTO carillon.subscriptions (topic, user_id) VALUES ('releases', 'ada')")
            for audience in [
                #""users":["bob","ada"]"#, #""topic":"releases""#, #""all":true,"except":["bob"]"#,
            ] { #expect(try await simulate(audience).steps == ["store", "push"], "\(audience)") }
        }
    }
}
