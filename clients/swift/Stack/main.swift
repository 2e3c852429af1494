// Carillon · main.swift
// SPDX-License-Identifier: Apache-2.0

// Tests the library against a running stack, such as that of `deploy/up`.
//
// Needs `GATEWAY_URL`, `SERVICE_TOKEN` and `USER_TOKEN` in the environment, and the types
// `payment_received` and `invoice_created` in the catalog. The user of `USER_TOKEN` should have no
// other clients. Prints a line for each step, then `done`; exits with 1 at the first failure.

import CarillonClient
import Foundation
import Synchronization

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

struct Failure: Error {
    let step: String
}

func require(_ condition: Bool, _ step: String) throws {
    if !condition { throw Failure(step: step) }
}

func variable(_ name: String) throws -> String {
    guard let value = ProcessInfo.processInfo.environment[name] else { throw Failure(step: "\(name) is not set") }
    return value
}

/// Prints a line without buffering, even into a pipe.
func say(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}

/// Returns the `sub` of a JWT.
func user(of token: String) throws -> String {
    let parts = token.split(separator: ".")
    try require(parts.count == 3, "USER_TOKEN is no JWT")
    var claims = String(parts[1]).replacingOccurrences(of: "-", with: "+").replacingOccurrences(of: "_", with: "/")
    while claims.count % 4 != 0 { claims.append("=") }
    let payload = try JSONDecoder().decode(JSONValue.self, from: Data(base64Encoded: claims) ?? Data())
    return payload["sub"]?.string ?? ""
}

/// Sends jobs as the app's back-end does.
struct Sender: Sendable {
    let url: URL
    let token: String
    let user: String
    /// The prefix of this run's ids, so that runs do not collide.
    let run = UUID().uuidString.prefix(8).lowercased()

    func send(_ jobs: [[String: JSONValue]]) async throws {
        var request = URLRequest(url: self.url.appending(path: "v1/jobs"))
        request.httpMethod = "POST"
        request.httpBody = try JSONEncoder().encode(jobs)
        request.setValue("application/json", forHTTPHeaderField: "Content-Type")
        request.setValue("Bearer \(self.token)", forHTTPHeaderField: "Authorization")
        let (data, response) = try await URLSession.shared.data(for: request)
        try require((response as? HTTPURLResponse)?.statusCode == 202, String(decoding: data, as: UTF8.self))
    }

    func job(_ title: String, type: String = "payment_received") -> [String: JSONValue] {
        [
            "user": .string(self.user), "type": .string(type), "id": .string("\(self.run):\(title)"),
            "title": .string(title),
        ]
    }
}

/// Waits up to a minute until a condition holds; only a failure takes that long.
@MainActor
func until(_ step: String, _ condition: () -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(60)
    while !condition() {
        try require(ContinuousClock.now < deadline, step)
        // Poll, because the model does not signal every condition.
        try await Task.sleep(for: .milliseconds(5))
    }
}

/// Reads arrivals until all these titles came; fails if one comes twice.
@MainActor
func take(
    _ titles: Set<String>, from arrivals: AsyncThrowingStream<InboxNotification, any Error>
) async throws -> [InboxNotification] {
    var taken: [InboxNotification] = []
    var seen: Set<String> = []
    for try await arrival in arrivals {
        try require(seen.insert(arrival.title).inserted, "\(arrival.title) came twice")
        taken.append(arrival)
        if titles.isSubset(of: seen) { break }
    }
    return taken
}

@MainActor
func main() async throws {
    guard let url = URL(string: try variable("GATEWAY_URL")) else { throw Failure(step: "GATEWAY_URL is no URL") }
    let userToken = try variable("USER_TOKEN")
    let sender = Sender(url: url, token: try variable("SERVICE_TOKEN"), user: try user(of: userToken))

    // A bad token first, then the user's.
    let calls = Mutex<[Bool]>([])
    let gateway = try Gateway(url) { isRefused in
        calls.withLock { $0.append(isRefused) }
        return isRefused ? userToken : "not.a.token"
    }
    let inbox = Inbox(gateway)
    let other = Inbox(try Gateway(url) { _ in userToken })
    inbox.connect()
    other.connect()
    try await inbox.connected()
    try await other.connected()
    try require(calls.withLock { $0 } == [false, true], "the token provider was called otherwise")
    say("a fresh token replaces a refused one")

    try await inbox.markAllRead()
    try await until("everything is read") { inbox.unread == 0 && other.unread == 0 }
    say("markAllRead empties the unread count on both clients")

    let arrivals = inbox.arrivals()
    var first = sender.job("first")
    first["data"] = .object(["größe": .integer(1)])
    try await sender.send([first, sender.job("again"), sender.job("again")])
    let taken = try await take(["first", "again"], from: arrivals)
    try require(taken.first { $0.title == "first" }?.data?["größe"] == .integer(1), "the data differs")
    say("jobs arrive, a repeated one once")

    let many = inbox.arrivals()
    let jobs = (0..<900).map { sender.job("\($0)", type: "invoice_created") }
    try await sender.send(jobs)
    _ = try await take(Set(jobs.compactMap { $0["title"]?.string }), from: many)
    try require(inbox.dropped == 0, "arrivals were dropped")
    say("900 jobs arrive once each")

    let ids = inbox.notifications.map(\.id)
    try await inbox.markRead(Array(ids.prefix(600)))
    try require(inbox.notifications.prefix(600).allSatisfy(\.isRead), "not all are read")
    try require(!inbox.notifications[700].isRead, "another is read")
    try await until("the read reaches the other client") { other.unread == inbox.unread }
    try await inbox.markAllRead()
    try await until("the read of all reaches the other client") { other.unread == 0 }
    say("reads reach both clients")

    try await inbox.markUnread(ids[0])
    try await until("it is unread again") { other.unread == 1 && other.notifications.first?.isRead == false }
    try await inbox.archive(ids[0])
    try await until("it is archived") { !other.notifications.contains { $0.id == ids[0] } && other.unread == 0 }
    try await inbox.restore(ids[0])
    try await until("it is back") { other.notifications.contains { $0.id == ids[0] } }
    try await inbox.delete(ids[0])
    try await until("it is deleted") { !other.notifications.contains { $0.id == ids[0] } }
    // As after a lost answer.
    try await inbox.delete(ids[0])
    do {
        try await inbox.gateway.delete(ids[0])
        throw Failure(step: "a deleted notification was deleted again")
    } catch GatewayError.refused(let problem) {
        try require(problem.status == 404 && problem.requestID != nil, "\(problem)")
    }
    say("unread, archive, restore and delete reach the other client")

    let events = inbox.events()
    try await sender.send([
        [
            "user": .string(sender.user), "event": .string("rates"),
            "args": .array([.integer(1), .object(["usd": .integer(2)])]),
        ]
    ])
    for try await event in events {
        try require(event.name == "rates" && event.arguments[1]["usd"] == .integer(2), "\(event)")
        break
    }
    say("an ephemeral event arrives")

    inbox.disconnect()
    let version = inbox.version
    try await sender.send([sender.job("while away")])
    let later = inbox.arrivals()
    inbox.connect()
    _ = try await take(["while away"], from: later)
    let resumed = Inbox(gateway, resume: version)
    resumed.connect()
    try await resumed.connected()
    try require(resumed.notifications.map(\.title) == ["while away"], "the resumed inbox has more")
    try await resumed.loadOlder()
    try require(resumed.notifications.count == 50 && resumed.hasOlder, "the page has another size")
    resumed.close()
    say("an inbox that resumes gets what it missed, and loads older pages")

    try await checkSettings(gateway)
    inbox.close()
    other.close()
    say("done")
}

@MainActor
func checkSettings(_ gateway: Gateway) async throws {
    let hours = QuietHours(start: "22:00", end: "07:00", weekdays: [1, 2, 3, 4, 5])
    try await gateway.setQuietHours(hours)
    try require(try await gateway.quietHours() == hours, "the quiet hours differ")
    try await gateway.setQuietHours(nil)
    try require(try await gateway.quietHours() == nil, "the quiet hours stayed")
    do {
        try await gateway.setQuietHours(QuietHours(start: "25:00", end: "07:00"))
        throw Failure(step: "an invalid time was accepted")
    } catch GatewayError.refused(let problem) {
        try require(problem.status == 422 && problem.faults.map(\.field) == ["start"], "\(problem)")
    }
    say("quiet hours are set and removed, and a fault is named")

    let changed = try await gateway.setPreferences([.type("invoice_created", [.push: false])])
    try require(changed.types.first { $0.type == "invoice_created" }?.push == false, "the push stayed on")
    try await gateway.setPreferences([.type("invoice_created", [.push: nil])])
    try require(try await gateway.preferences() != changed, "the preference stayed")
    say("preferences are set")

    let token = Data((0..<32).map { UInt8($0) })
    let device = try await gateway.registerDevice(
        token: token, DeviceRegistration(environment: .sandbox, deviceID: "stack", name: "Stack", locale: "de-AT"))
    try require(device.active && device.deviceID == "stack", "\(device)")
    try await gateway.unregisterDevice(deviceID: "stack")
    try await gateway.unregisterDevice(deviceID: "stack")
    say("a device is registered and removed")
}

do {
    try await main()
} catch {
    say("failed: \(error)")
    exit(1)
}
