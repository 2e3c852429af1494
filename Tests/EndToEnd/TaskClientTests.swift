// Carillon · TaskClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// The household-task app's client on `/api/push/apns/`, `/api/push/gcm/` and `/api/push/test/`.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct TaskClientTests {
    private static let apnsToken = String(repeating: "ab", count: 32)

    @Test("devices of both providers are registered, listed, tested and removed, with or without a final slash")
    func devices() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let eve = try await CompatibilityClient(gateway, user: "eve")
            let phone = #"{"registration_id":"\#(Self.apnsToken)","device_id":"D1","name":"iPhone","active":true}"#
            let apns = try await ada.send(.post, "/api/push/apns/", phone)
            #expect(apns.status == 201)
            #expect(apns.body["registration_id"]?.string == Self.apnsToken)
            #expect(apns.body["active"]?.bool == true)
            let number = try #require(apns.body["id"]?.integer)
            #expect((0...Int64(Int32.max)).contains(number))
            // A form, as Python's `requests` sends a dictionary.
            let android = try await gateway.call(
                .post,
                "/api/push/gcm",
                token: ada.token,
                json: "registration_id=f%3Ax&name=Pixel",
                headers: [(name: "content-type", value: "application/x-www-form-urlencoded")]
            )
            #expect(android.status == 201)
            #expect(android.body["registration_id"]?.string == "f:x")
            let bad = try await ada.send(.post, "/api/push/apns/", #"{"registration_id":"xyz"}"#)
            #expect(bad.status == 400)
            #expect(bad.body["error"]?.string?.hasPrefix("registration_id must be 64 to 200 hex") == true)
            #expect(try await ada.get("/api/push/apns/").body.array?.count == 1)
            #expect(try await ada.get("/api/push/gcm/").body.texts("registration_id") == ["f:x"])
            #expect(try await eve.get("/api/push/gcm/").body.array?.isEmpty == true)

            // A disabled device is registered too.
            let off = #"{"registration_id":"off","active":false}"#
            let silenced = try await ada.send(.post, "/api/push/gcm/", off)
            #expect(silenced.status == 201)
            #expect(silenced.body["active"]?.bool == false)

            let test = #"{"title":"Test","message":"Hello"}"#
            #expect(try await ada.send(.post, "/api/push/test/", #"{"title":"Test"}"#).status == 400)
            #expect(try await ada.send(.post, "/api/push/test/", test).status == 200)
            try await eventually("both devices got it") { stack.pushed().count == 2 }
            #expect(stack.pushed() == [Self.apnsToken: ["Test"], "f:x": ["Test"]])
            let on = try await ada.send(.post, "/api/push/gcm/", #"{"registration_id":"off","active":true}"#)
            #expect(on.body["active"]?.bool == true)
            #expect(on.body["id"] == silenced.body["id"])
            #expect(on.body["date_created"] == silenced.body["date_created"])
            #expect(try await ada.send(.delete, "/api/push/gcm/off/").status == 204)
            let inbox = try await ada.get("/v1/notifications/unread-count").body
            #expect(inbox["total"]?.integer == 0)

            #expect(try await eve.send(.delete, "/api/push/apns/\(number)/").status == 404)
            #expect(try await eve.send(.delete, "/api/push/apns/\(Self.apnsToken)/").status == 404)
            #expect(try await ada.send(.delete, "/api/push/gcm/\(number)/").status == 404)
            #expect(try await ada.send(.delete, "/api/push/apns/\(number)/").status == 204)
            #expect(try await ada.send(.delete, "/api/push/apns/\(number)").status == 404)
            #expect(try await ada.send(.delete, "/api/push/gcm/f%3Ax/").status == 204)
            for form in ["body", "query"] {
                _ = try await ada.send(.post, "/api/push/gcm/", #"{"registration_id":"t2"}"#)
                let isBody = form == "body"
                let path = isBody ? "/api/push/gcm/" : "/api/push/gcm/?registration_id=t2"
                let json = isBody ? #"{"registration_id":"t2"}"# : nil
                #expect(try await ada.send(.delete, path, json).status == 204)
            }
            #expect(try await ada.send(.delete, "/api/push/gcm/").status == 400)
            #expect(try await ada.get("/api/push/gcm").body.array?.isEmpty == true)
        }
    }

    @Test("without the type push_test in the catalog there are no test sends")
    func testSends() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: try stack.catalog("types: {t: {}}"))
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let answer = try await ada.send(.post, "/api/push/test/", #"{"title":"T","message":"M"}"#)
            #expect(answer.status == 404)
            #expect(answer.body["error"]?.string == "test sends are off: the catalog has no type push_test")
        }
    }
}
