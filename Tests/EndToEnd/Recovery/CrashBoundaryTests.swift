// Carillon · CrashBoundaryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import Support
import Testing

/// A dispatcher is killed at each boundary between two stages: nothing is lost, and a push is
/// repeated only where its outcome cannot be known.
@Suite(.timeLimit(.minutes(10)))
struct CrashBoundaryTests {
    /// Where the dispatcher dies, and how many pushes are allowed.
    struct Boundary: Sendable, CustomTestStringConvertible {
        enum Server: Sendable { case redis, postgres }

        let name: String
        let server: Server
        let words: String
        let side: TripwireProxy.Side
        /// Whether the user has a socket; a phone otherwise.
        var isOnline = false
        /// Whether that socket answers pings.
        var proves = true
        /// Whether the job is a broadcast, which is stored by pages.
        var isBroadcast = false
        /// The pushes of a socket's user if the proof's deadline passes before the takeover; nil if
        /// it does not.
        var leastPushes: Int?
        /// A push whose answer was not recorded is sent again.
        var mostPushes = 1
        /// Finds a row once PostgreSQL has committed what the proxy let through: a program that is
        /// killed earlier may not have sent all of it.
        var commit: String?

        var testDescription: String { self.name }
    }

    static let boundaries: [Boundary] = [
        Boundary(name: "job taken, not stored", server: .postgres, words: Self.title, side: .before),
        Boundary(
            name: "job stored, commit answer lost", server: .postgres, words: Self.title, side: .after,
            commit: "SELECT FROM carillon.notifications"),
        Boundary(
            name: "stored, no deadline, not published", server: .redis, words: Self.deadline, side: .before,
            isOnline: true),
        Boundary(
            name: "deadline set, not published", server: .redis, words: "PUBLISH", side: .before, isOnline: true,
            leastPushes: 1),
        Boundary(
            name: "published, not acknowledged", server: .redis, words: "PUBLISH", side: .after, isOnline: true),
        Boundary(
            name: "unconfirmed, push not queued", server: .redis, words: Self.queued, side: .before,
            isOnline: true, proves: false, leastPushes: 1),
        Boundary(
            name: "unconfirmed, push queued, Redis's answer lost", server: .redis, words: Self.queued, side: .after,
            isOnline: true, proves: false, leastPushes: 1),
        Boundary(name: "stored, not queued", server: .redis, words: Self.queued, side: .before),
        Boundary(
            name: "broadcast page stored, not queued", server: .redis, words: Self.queued, side: .before,
            isBroadcast: true),
        Boundary(
            name: "broadcast page queued, Redis's answer lost", server: .redis, words: Self.queued, side: .after,
            isBroadcast: true),
        Boundary(name: "queued, Redis's answer lost", server: .redis, words: Self.queued, side: .after),
        Boundary(name: "queued, not marked as queued", server: .postgres, words: "queued", side: .before),
        Boundary(
            name: "accepted by the provider, not recorded", server: .postgres, words: "/messages/", side: .before,
            mostPushes: 2),
        Boundary(
            name: "recorded, commit answer lost", server: .postgres, words: "/messages/", side: .after,
            commit: "SELECT FROM carillon.delivery_attempts WHERE outcome = 'accepted'"),
    ]

    private static let title = "boundary-title"
    /// The condition and the length of a proof's deadline; no other command here has both.
    private static let deadline = "\r\nNX\r\n$13\r\n"
    private static let queued = ":deliveries:critical\r\n$1\r\n*"
    /// The arguments of the script that acknowledges entries of the jobs stream.
    private static let acknowledged = "\r\n$1\r\n1\r\n$22\r\ncarillon:jobs:critical\r\n$11\r\ndispatchers\r\n"

    /// A boundary in the handling of delayed work, armed once that work waits.
    struct LateBoundary: Sendable, CustomTestStringConvertible {
        enum Wait: Sendable { case quietHours, digest, gather, attention, email, retry, replay }

        let name: String
        let wait: Wait
        let server: Boundary.Server
        let words: String
        /// A push may leave before its record is stopped.
        var mostPushes = 1

        var testDescription: String { self.name }
    }

    static let lateBoundaries: [LateBoundary] = [
        LateBoundary(
            name: "quiet hours over, push not queued", wait: .quietHours, server: .redis, words: Self.queued),
        LateBoundary(
            name: "quiet hours over, push queued, follow-up not deleted", wait: .quietHours, server: .postgres,
            words: "DELETE FROM carillon.follow_ups f USING", mostPushes: 2),
        LateBoundary(
            name: "added to a digest, not acknowledged", wait: .gather, server: .redis, words: Self.acknowledged),
        LateBoundary(
            name: "attention push due, not queued", wait: .attention, server: .redis, words: Self.queued),
        LateBoundary(
            name: "attention push queued, follow-up not deleted", wait: .attention, server: .postgres,
            words: "DELETE FROM carillon.follow_ups f USING", mostPushes: 2),
        LateBoundary(name: "mail due, not queued", wait: .email, server: .redis, words: Self.queued),
        LateBoundary(
            name: "mail queued, follow-up not deleted", wait: .email, server: .postgres,
            words: "DELETE FROM carillon.follow_ups f USING", mostPushes: 2),
        LateBoundary(
            name: "summary queued, digest not deleted", wait: .digest, server: .postgres,
            words: "DELETE FROM carillon.digests WHERE id", mostPushes: 2),
        LateBoundary(
            name: "dead letter replayed, not deleted", wait: .replay, server: .postgres,
            words: "DELETE FROM carillon.dead_letters d USING unnest"),
        LateBoundary(name: "retry planned, not queued", wait: .retry, server: .redis, words: ":retry:critical"),
    ]

    @Test(
        "a dispatcher killed between two stages loses nothing and repeats only what it cannot know",
        arguments: Self.boundaries)
    func kill(at boundary: Boundary) async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let behaviour = TestSocket.Behaviour(answersPings: boundary.proves)
            let socket =
                boundary.isOnline
                ? try await TestSocket.synced(port: gateway.port, user: "ada", behaviour: behaviour) : nil
            let doomed = try await Self.startDoomed(stack, boundary.server)
            doomed.proxy.arm(boundary.words, boundary.side)
            try await stack.append(
                [
                    boundary.isBroadcast ? ("all", "true") : ("user", "ada"), ("type", "payment_received"),
                    ("title", Self.title),
                ],
                stream: "carillon:jobs:critical")
            try await eventually("the proxy has stopped the traffic") { doomed.proxy.isTripped }
            if let commit = boundary.commit {
                try await eventually("PostgreSQL has committed") { try await !stack.query(commit).isEmpty }
            }
            doomed.process.send(SIGKILL)
            try await doomed.process.waitForExit()
            // A sweep finds a broadcast's rows without an owner.
            if boundary.isBroadcast { try await stack.makeOlder() }
            if let count = boundary.leastPushes {
                try await stack.keepLeases()
                try await stack.setProofDeadlines(to: Timestamp(milliseconds: 1))
                _ = try await stack.startDispatcher(name: "heir")
                try await eventually("the deadline has passed") { stack.pushed()["ada-phone"]?.count == count }
                try await stack.endLeases()
            } else {
                try await stack.endLeases()
                _ = try await stack.startDispatcher(name: "heir")
            }
            let expected = boundary.isOnline && boundary.proves ? "delivered" : "sent"
            try await eventually("it reaches its user") {
                try await stack.statuses(user: "ada") == [Self.title: expected]
            }
            try await eventuallyEmpty("nothing is left to do") { try await Self.unfinished(stack) }
            let count = stack.pushed()["ada-phone"]?.count ?? 0
            if let socket {
                #expect(socket.titles == [Self.title])
                #expect(count == boundary.leastPushes ?? 0)
            } else {
                #expect((1...boundary.mostPushes).contains(count))
            }
            await doomed.proxy.close()
        }
    }

    @Test("a dispatcher killed while handling due work loses nothing", arguments: Self.lateBoundaries)
    func killLater(at boundary: LateBoundary) async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            var catalog = try stack.catalog(
                """
                types:
                  news: {severity: info, delivery: push}
                  comment: {severity: info, delivery: push, digest: {window: 1h}}
                  look: {severity: info, delivery: push, attention_delay: 1h}
                  reminder: {channels: [in_app, email], email_after: 1h}
                """
            )
            if boundary.wait == .email { catalog.merge(stack.mailSettings()) { $1 } }
            let gateway = try await stack.startGateway(environment: catalog)
            let phone = boundary.wait == .retry ? "unavailable-3x-phone" : "ada-phone"
            try await gateway.register(user: "ada", platform: "android", token: phone)
            let doomed = try await Self.startDoomed(stack, boundary.server, environment: catalog)
            let socket =
                boundary.wait == .attention ? try await TestSocket.synced(port: gateway.port, user: "ada") : nil
            if let socket { try await stack.makeIdle(socket, user: "ada") }
            try await Self.createDelayedWork(boundary.wait, stack, gateway)
            doomed.proxy.arm(boundary.words, .before)
            switch boundary.wait {
            case .quietHours: try await gateway.set(QuietNow.over, of: "ada")
            case .digest: try await stack.closeDigests()
            case .gather: try await Self.gather("two", stack)
            case .attention, .email: try await stack.query("UPDATE carillon.follow_ups SET due_at = now()")
            case .retry: break
            case .replay: try await stack.query("UPDATE carillon.dead_letters SET replay_at = now()")
            }
            try await eventually("the proxy has stopped the traffic") { doomed.proxy.isTripped }
            doomed.process.send(SIGKILL)
            try await doomed.process.waitForExit()
            // The claims of the dead dispatcher have expired.
            try await stack.endLeases()
            switch boundary.wait {
            case .quietHours, .attention, .email: try await stack.query("UPDATE carillon.follow_ups SET due_at = now()")
            case .digest: try await stack.closeDigests()
            case .replay: try await stack.query("UPDATE carillon.dead_letters SET replay_at = now()")
            case .gather, .retry: break
            }
            _ = try await stack.startDispatcher(name: "heir", environment: catalog)
            if boundary.wait == .gather {
                try await eventuallyEmpty("it is taken over") { try await Self.unfinished(stack) }
                #expect(try await stack.query("SELECT 1 FROM carillon.digest_items").count == 2)
                try await stack.closeDigests()
            }
            // An idle user's socket has already received it; the phone must still ring.
            let expected = boundary.wait == .attention ? ["delivered", "sent"] : ["sent"]
            try await eventually("it reaches its user") {
                let statuses = try await stack.statuses(user: "ada").values
                return statuses.count == 1 && statuses.allSatisfy { expected.contains($0) }
            }
            try await eventuallyEmpty("nothing is left to do") {
                let rows = try await stack.query(
                    """
                    SELECT 'follow-up ' || kind FROM carillon.follow_ups
                    UNION ALL SELECT 'digest' FROM carillon.digests
                    UNION ALL SELECT concat_ws(' ', 'dead letter', reason, replay_at) FROM carillon.dead_letters
                    """
                ).map { try $0.text(0) }
                return try await rows + Self.unfinished(stack)
            }
            let count = boundary.wait == .email ? try stack.mails().count : stack.pushed()[phone]?.count ?? 0
            #expect((1...boundary.mostPushes).contains(count))
            if let socket { #expect(socket.titles == [Self.title]) }
            await doomed.proxy.close()
        }
    }

    /// Boundaries after the end of quiet hours, once a summary is stored.
    static let summaryBoundaries: [LateBoundary] = [
        LateBoundary(name: "summary not queued", wait: .quietHours, server: .redis, words: Self.queued),
        // The statement alone, not the one that ends the follow-ups when the summary is stored.
        LateBoundary(
            name: "summary queued, other follow-ups not deleted", wait: .quietHours, server: .postgres,
            words: "\0DELETE FROM carillon.follow_ups f USING", mostPushes: 2),
    ]

    @Test(
        "a dispatcher killed after it stored a summary leaves it to others, whatever is read meanwhile",
        arguments: Self.summaryBoundaries)
    func killAfterSummary(at boundary: LateBoundary) async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let catalog = try stack.catalog("types: {news: {severity: info, delivery: push}}")
            let gateway = try await stack.startGateway(environment: catalog)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let doomed = try await Self.startDoomed(stack, boundary.server, environment: catalog)
            try await gateway.set(QuietNow.settings, of: "ada")
            for number in 1...6 {
                try await stack.append(
                    [("user", "ada"), ("type", "news"), ("title", "n\(number)")], stream: "carillon:jobs:critical")
            }
            try await eventually("quiet hours hold them back") {
                try await stack.statuses(user: "ada").values.count { $0 == "deferred" } == 6
            }
            doomed.proxy.arm(boundary.words, .before)
            try await gateway.set(QuietNow.over, of: "ada")
            try await eventually("the proxy has stopped the traffic") { doomed.proxy.isTripped }
            doomed.process.send(SIGKILL)
            try await doomed.process.waitForExit()
            let token = Stack.token(user: "ada")
            let list = try await gateway.call(.get, "/v1/notifications?limit=1", token: token)
            let latest = try #require(list.body["notifications"]?.array?.first?["id"]?.string)
            let answer = try await gateway.call(.post, "/v1/notifications/\(latest)/read", token: token)
            #expect(answer.status < 300)
            try await stack.endLeases()
            try await stack.query("UPDATE carillon.follow_ups SET due_at = now()")
            // A sweep finds a summary without an owner.
            try await stack.makeOlder()
            _ = try await stack.startDispatcher(name: "heir", environment: catalog)
            try await eventually("the summary is sent") {
                try await stack.statuses(user: "ada")["6 notifications"] == "sent"
            }
            try await eventuallyEmpty("nothing is left to do") {
                let rows = try await stack.query("SELECT 'follow-up ' || kind FROM carillon.follow_ups")
                    .map { try $0.text(0) }
                return try await rows + Self.unfinished(stack)
            }
            let pushed = stack.pushed()["ada-phone"] ?? []
            #expect(Set(pushed) == ["6 notifications"] && pushed.count <= boundary.mostPushes)
            await doomed.proxy.close()
        }
    }

    @Test("a dispatcher killed after it deferred a notification, before it queued its mail, loses no mail")
    func killBeforeMail() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            var catalog = try stack.catalog(
                "types: {news: {severity: info, delivery: push, channels: [in_app, push, email]}}")
            catalog.merge(stack.mailSettings()) { $1 }
            let gateway = try await stack.startGateway(environment: catalog)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await stack.setAddress("ada@example.com", of: "ada", wanting: "news", by: gateway)
            let settings = QuietNow.settings.replacing(#"{"zone""#, with: #"{"email":"ada@example.com","zone""#)
            try await gateway.set(settings, of: "ada")
            let doomed = try await Self.startDoomed(stack, .redis, environment: catalog)
            doomed.proxy.arm(Self.queued, .before)
            try await stack.append(
                [("user", "ada"), ("type", "news"), ("title", Self.title)], stream: "carillon:jobs:critical")
            try await eventually("the proxy has stopped the traffic") { doomed.proxy.isTripped }
            #expect(try await stack.statuses(user: "ada") == [Self.title: "deferred"])
            doomed.process.send(SIGKILL)
            try await doomed.process.waitForExit()
            try await stack.endLeases()
            _ = try await stack.startDispatcher(name: "heir", environment: catalog)
            try await eventually("the job is taken over") {
                try await stack.connection.send("XLEN", "carillon:jobs:critical").integer() == 0
            }
            try await stack.query("UPDATE carillon.follow_ups SET due_at = now() WHERE kind = 'email'")
            _ = try await stack.firstMail()
            await doomed.proxy.close()
        }
    }

    private static func gather(_ title: String, _ stack: Stack) async throws {
        try await stack.append(
            [("user", "ada"), ("type", "comment"), ("title", title), ("digest", "post")],
            stream: "carillon:jobs:critical")
    }

    /// Creates delayed work of a kind and waits until it is stored.
    private static func createDelayedWork(_ wait: LateBoundary.Wait, _ stack: Stack, _ gateway: Gateway) async throws {
        let stream = "carillon:jobs:critical"
        switch wait {
        case .quietHours:
            try await gateway.set(QuietNow.settings, of: "ada")
            try await stack.append([("user", "ada"), ("type", "news"), ("title", Self.title)], stream: stream)
            try await eventually("quiet hours hold it back") {
                try await stack.statuses(user: "ada") == [Self.title: "deferred"]
            }
        case .digest:
            for title in ["one", "two"] { try await Self.gather(title, stack) }
            try await eventually("both are in the digest") {
                try await stack.query("SELECT 1 FROM carillon.digest_items").count == 2
            }
        case .gather:
            try await Self.gather("one", stack)
            try await eventually("it is in the digest and acknowledged") {
                let isGathered = try await stack.query("SELECT 1 FROM carillon.digest_items").count == 1
                return try await Self.unfinished(stack).isEmpty && isGathered
            }
        case .attention, .email:
            if wait == .email { try await stack.setAddress("ada@example.com", of: "ada", by: gateway) }
            let type = wait == .email ? "reminder" : "look"
            try await stack.append([("user", "ada"), ("type", type), ("title", Self.title)], stream: stream)
            try await eventually("it is deferred") {
                let isWaiting = try await stack.query("SELECT 1 FROM carillon.follow_ups").count == 1
                return try await Self.unfinished(stack).isEmpty && isWaiting
            }
        case .replay:
            try await stack.append([("user", "ada"), ("type", "unheard"), ("title", Self.title)], stream: stream)
            try await eventually("it is a dead letter") {
                let isStored = try await stack.query("SELECT 1 FROM carillon.dead_letters").count == 1
                return try await Self.unfinished(stack).isEmpty && isStored
            }
            // As if the catalog had gained the type since.
            try await stack.query(
                "UPDATE carillon.dead_letters SET fields = replace(fields::text, 'unheard', 'news')::jsonb")
        case .retry:
            try await stack.append([("user", "ada"), ("type", "news"), ("title", Self.title)], stream: stream)
            try await eventually("an attempt has failed") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'").count > 0
            }
        }
    }

    private static func startDoomed(
        _ stack: Stack,
        _ server: Boundary.Server,
        environment more: [String: String] = [:]
    ) async throws -> (process: ChildProcess, proxy: TripwireProxy) {
        var environment = more
        let proxy: TripwireProxy
        switch server {
        case .redis:
            proxy = try await TripwireProxy.start(port: stack.redis.port)
            environment["REDIS_URL"] = "redis://127.0.0.1:\(proxy.port)/0"
        case .postgres:
            let url = try #require(stack.database.flatMap { URLComponents(string: $0.url) })
            proxy = try await TripwireProxy.start(port: url.port ?? 5432)
            var through = url
            through.port = proxy.port
            environment["DATABASE_URL"] = through.string
        }
        let process = try await stack.startDispatcher(name: "doomed", environment: environment)
        return (process, proxy)
    }

    /// The streams and sets that hold unfinished work, with the number of their entries.
    private static func unfinished(_ stack: Stack) async throws -> [String] {
        let streams = [
            "carillon:jobs:critical", "carillon:{fcm}:deliveries:critical", "carillon:{email}:deliveries:critical",
        ]
        let sets = ["carillon:{fcm}:retry:critical", "carillon:{fcm}:held:critical:default"]
        var unfinished: [String] = []
        for (command, keys) in [("XLEN", streams), ("ZCARD", sets)] {
            for key in keys {
                let count = try await stack.connection.send(.text(command), .text(key)).integer()
                if count > 0 { unfinished.append("\(count) in \(key)") }
            }
        }
        let deadlines = try await stack.proofDeadlines().count
        if deadlines > 0 { unfinished.append("\(deadlines) deadlines of proofs") }
        return unfinished
    }
}
