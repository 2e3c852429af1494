// Carillon · NewsClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// The news app's client on `/device-token`.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct NewsClientTests {
    @Test("a token is registered, replaced, reported, pushed to and unregistered")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let empty = try await ada.get("/device-token/status").body
            #expect(empty["has_token"]?.bool == false)
            #expect(empty["notifications_enabled"]?.bool == false)
            #expect(empty["platform"] == .null)
            let missing = try await ada.send(.post, "/device-token/register", #"{"platform":"ios"}"#)
            #expect(missing.status == 422)
            #expect(missing.body["detail"]?.string == "fcm_token is missing")
            for token in ["old", "new"] {
                let body = #"{"fcm_token":"\#(token)","platform":"ios","app_version":"1.0"}"#
                let answer = try await ada.send(.post, "/device-token/register", body)
                #expect(answer.status == 200)
                #expect(answer.body["success"]?.bool == true)
                #expect(answer.body["message"]?.string == "Device token registered successfully")
            }
            let status = try await ada.get("/device-token/status").body
            #expect(status["has_token"]?.bool == true)
            #expect(status["notifications_enabled"]?.bool == true)
            #expect(status["token_count"]?.integer == 1)
            #expect(status["platform"]?.string == "ios")
            let preferences = status["preferences"]
            #expect(preferences?["breaking_news"]?.bool == true)
            #expect(preferences?["developing_stories"]?.bool == true)
            #expect(preferences?["daily_digest"]?.bool == false)

            let story = #"{"storyId":"s1","category":"politics"}"#
            // The app's monitor repeats a story every five minutes; it notifies once.
            for _ in 0..<2 {
                try await stack.append([
                    ("user", "ada"), ("type", "breaking_news"), ("id", "story:s1"), ("title", "BREAKING"),
                    ("data", story),
                ])
            }
            try await stack.append([("user", "ada"), ("type", "breaking_news"), ("title", "another")])
            try await eventually("both stories") { stack.pushed()["new"]?.count == 2 }
            #expect(Set(stack.pushed()["new"] ?? []) == ["BREAKING", "another"])
            #expect(stack.pushed()["old"] == nil)

            let eve = try await CompatibilityClient(gateway, user: "eve")
            _ = try await eve.send(.post, "/device-token/unregister", #"{"fcm_token":"new"}"#)
            #expect(try await ada.get("/device-token/status").body["has_token"]?.bool == true)
            let gone = try await ada.send(.post, "/device-token/unregister", #"{"fcm_token":"new"}"#)
            #expect(gone.body["success"]?.bool == true)
            #expect(try await ada.get("/device-token/status").body["notifications_enabled"]?.bool == false)
            #expect(try await gateway.call(.get, "/device-token/status", token: nil).status == 401)

            // As the app does it: unregistering names no token, and registering ends an opt-out.
            let register = #"{"fcm_token":"third","platform":"ios","app_version":"1.0"}"#
            #expect(try await ada.send(.post, "/device-token/register", register).status == 200)
            #expect(try await ada.send(.post, "/device-token/unregister").body["success"]?.bool == true)
            #expect(try await ada.get("/device-token/status").body["has_token"]?.bool == false)
            #expect(try await ada.send(.put, "/v1/settings", #"{"opted_out":true}"#).status == 200)
            #expect(try await ada.send(.post, "/device-token/register", register).status == 200)
            #expect(try await ada.get("/device-token/status").body["notifications_enabled"]?.bool == true)
            #expect(try await ada.get("/v1/settings").body["opted_out"]?.bool == false)
        }
    }
}
