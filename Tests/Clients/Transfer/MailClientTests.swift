// Carillon · MailClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Sandbox
import Support
import Synchronization
import Testing

@testable import Clients

@Suite("Mail over real connections", .transfer, .timeLimit(.minutes(10)))
struct MailClientTests {
    /// Runs the body with a client of the sandbox's relay.
    private static func with<Result>(
        url: String? = nil,
        trusts: Bool = true,
        _ change: (inout MailConfiguration) -> Void = { _ in },
        _ body: (MailClient) async throws -> Result
    ) async throws -> Result {
        let sandbox = try #require(TransferScope.sandbox)
        var configuration = MailConfiguration()
        configuration.caFile = trusts ? sandbox.caPath : nil
        configuration.connectTimeout = .seconds(600)
        configuration.idleTime = .seconds(600)
        change(&configuration)
        let relay = try MailRelay(url: url ?? sandbox.smtpURL)
        let client = try MailClient(relay: relay, configuration: configuration)
        defer { client.shutdown() }
        return try await body(client)
    }

    /// Waits until the client's only connection is in use.
    private static func waitUntilBusy(_ client: MailClient) async throws {
        try await eventually("the connection is in use") {
            let snapshot = client.snapshot()
            return snapshot.opened > 0 && snapshot.waiting == 0
        }
    }

    private static func mail(
        to recipient: String,
        from sender: String = "notices@example.com",
        text: String = "Hello",
        timeout: Duration = .seconds(600),
        priority: TransferPriority = .normal,
        mayStart: (@Sendable () -> Bool)? = nil
    ) -> MailRequest {
        let content = """
            From: \(sender)\r
            To: \(recipient)\r
            Subject: Hi\r
            Date: Sat, 21 Nov 2026 10:00:00 +0000\r
            Message-ID: <\(recipient)>\r
            MIME-Version: 1.0\r
            Content-Type: text/plain\r
            \r
            \(text)\r

            """
        return MailRequest(
            sender: sender, recipient: recipient, content: Array(content.utf8), timeout: timeout, priority: priority,
            mayStart: mayStart)
    }

    private static func address(_ marker: String) -> String {
        "\(marker)-\(UInt64.random(in: .min ... .max))@example.com"
    }

    @Test("a message arrives unchanged, dots included, over STARTTLS and over TLS")
    func arrives() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        for url in [sandbox.smtpURL, sandbox.smtpsURL] {
            try await Self.with(url: url) { client in
                let address = Self.address("ada")
                let text = ".\r\n..two\r\nend.\r\n.\r\nafter"
                let outcome = await client.send(Self.mail(to: address, text: text))
                guard case .answered(let reply) = outcome else { return #expect(Bool(false), "\(outcome)") }
                #expect(reply.isAccepted && reply.code == 250 && reply.enhancedCode == "2.0.0")
                let got = try #require(sandbox.received().last { $0.token == address })
                let payload = try #require(
                    try JSONSerialization.jsonObject(with: Data(got.payload)) as? [String: String])
                #expect(payload["text"] == text + "\r\n")
                #expect(payload["sender"] == "notices@example.com")
            }
        }
    }

    @Test("without a thread for its connection a message fails at once; the next one tries again")
    func noThread() async throws {
        let starts = Mutex(0)
        try await Self.with {
            $0.startThread = { name, body in
                let number = starts.withLock { starts in
                    starts += 1
                    return starts
                }
                return number > 1 && DetachedThread.run(name: name, body)
            }
        } _: { client in
            let first = await client.send(Self.mail(to: Self.address("ada")))
            #expect(first == .unanswered(TransferFailure(.other)))
            guard case .answered(let reply) = await client.send(Self.mail(to: Self.address("ada"))) else {
                Issue.record("the second message was not answered")
                return
            }
            #expect(reply.isAccepted)
            #expect(starts.withLock { $0 } == 2)
        }
    }

    @Test(
        "a reply names the stage that it answers",
        arguments: [
            ("busy", MailReply(stage: .recipient, code: 451, text: "4.7.1 Greylisted, come back later")),
            ("bounce", MailReply(stage: .recipient, code: 550, text: "5.1.1 No such user here")),
            ("gone", MailReply(stage: .recipient, code: 550, text: "No")),
            ("closing", MailReply(stage: .recipient, code: 421, text: "4.3.2 Shutting down")),
            ("later", MailReply(stage: .content, code: 452, text: "4.3.1 Out of room")),
            ("spam", MailReply(stage: .content, code: 554, text: "5.7.1 Looks like spam")),
            ("full", MailReply(stage: .content, code: 552, text: "5.2.2 Mailbox full")),
        ])
    func refusals(marker: String, expected: MailReply) async throws {
        try await Self.with { client in
            #expect(await client.send(Self.mail(to: Self.address(marker))) == .answered(expected))
            let next = await client.send(Self.mail(to: Self.address("ada")))
            guard case .answered(let reply) = next else { return #expect(Bool(false), "\(next)") }
            #expect(reply.isAccepted, "the client still works")
        }
    }

    @Test("a refused sender differs from a refused recipient")
    func sender() async throws {
        try await Self.with { client in
            let busy = Self.mail(to: Self.address("ada"), from: Self.address("busysender"))
            #expect(
                await client.send(busy)
                    == .answered(MailReply(stage: .sender, code: 421, text: "4.7.0 Too many messages")))
            let bad = Self.mail(to: Self.address("ada"), from: Self.address("badsender"))
            #expect(
                await client.send(bad)
                    == .answered(MailReply(stage: .sender, code: 550, text: "5.7.1 Sender not allowed")))
        }
    }

    @Test("a refused login is reported for any message")
    func login() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        try await Self.with(url: sandbox.smtpURL.replacing("carillon:", with: "mallory:")) { client in
            let outcome = await client.send(Self.mail(to: Self.address("ada")))
            guard case .answered(let reply) = outcome else { return #expect(Bool(false), "\(outcome)") }
            #expect(reply.stage == .session && reply.code == 535 && reply.enhancedCode == "5.7.8")
        }
    }

    @Test("logs in with the password at a relay that also offers GSSAPI to users with a domain")
    func kerberos() async throws {
        var configuration = SandboxConfiguration()
        configuration.relay = .kerberosLogin
        try await ProviderSandbox.with(configuration: configuration) { sandbox in
            try await TransferScope.$sandbox.withValue(sandbox) {
                let url = sandbox.smtpURL.replacing("carillon:", with: "carillon%40example.com:")
                try await Self.with(url: url) { client in
                    let outcome = await client.send(Self.mail(to: Self.address("ada")))
                    guard case .answered(let reply) = outcome else { return #expect(Bool(false), "\(outcome)") }
                    #expect(reply.isAccepted)
                }
            }
        }
    }

    @Test("nothing is sent to an untrusted or absent relay")
    func unreachable() async throws {
        let address = Self.address("ada")
        let distrusted = try await Self.with(trusts: false) { await $0.send(Self.mail(to: address)) }
        guard case .unanswered(let failure) = distrusted else { return #expect(Bool(false), "\(distrusted)") }
        #expect(failure.reason == .tls && !failure.mayHaveBeenSent)
        let absent = try await Self.with(url: "smtp://127.0.0.1:1") { await $0.send(Self.mail(to: address)) }
        guard case .unanswered(let failure) = absent else { return #expect(Bool(false), "\(absent)") }
        #expect(failure.reason == .connect && !failure.mayHaveBeenSent)
        #expect(TransferScope.sandbox?.received().contains { $0.token == address } == false)
    }

    @Test("a connection lost before the message did not send it; one lost after it may have")
    func cut() async throws {
        try await Self.with { client in
            let early = await client.send(Self.mail(to: Self.address("cutearly")))
            guard case .unanswered(let failure) = early else { return #expect(Bool(false), "\(early)") }
            #expect(failure.reason == .connectionLost && !failure.mayHaveBeenSent)
            let late = await client.send(Self.mail(to: Self.address("cut")))
            guard case .unanswered(let failure) = late else { return #expect(Bool(false), "\(late)") }
            #expect(failure.reason == .connectionLost && failure.mayHaveBeenSent)
        }
    }

    @Test("a connection ends once the relay has acknowledged nothing for 15 s")
    func acknowledgement() async throws {
        // It accepts the connection, and never greets.
        try await HTTPStub.with(HTTPStub.Answer(body: "", isSilent: true)) { stub in
            try await Self.with(url: "smtp://127.0.0.1:\(stub.port)") { client in
                let mail = Task { await client.send(Self.mail(to: Self.address("ada"))) }
                let limits = try await eventualValue("the relay is connected") {
                    let limits = try OwnSockets.acknowledgementLimits(toPort: stub.port)
                    return limits.isEmpty ? nil : limits
                }
                #expect(limits == [15_000])
                mail.cancel()
                _ = await mail.value
            }
        }
    }

    @Test("a silent relay times out, and the outcome is unknown")
    func silent() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        try await Self.with { client in
            let outcome = try await valueInTime("the relay has the message") { limit in
                let mail = Self.mail(to: Self.address("silent"), timeout: limit)
                let outcome = await client.send(mail)
                return sandbox.faultAttempts()[mail.recipient] == nil ? nil : outcome
            }
            guard case .unanswered(let failure) = outcome else { return #expect(Bool(false), "\(outcome)") }
            #expect(failure.reason == .timeout && failure.mayHaveBeenSent)
        }
    }

    @Test("sequential messages share a connection; concurrent ones open as many as allowed")
    func connections() async throws {
        try await Self.with {
            $0.connections = 3
        } _: { client in
            for _ in 0..<5 { _ = await client.send(Self.mail(to: Self.address("ada"))) }
            #expect(client.snapshot().opened == 1)
            let holders = (0..<6).map { _ in Task { await client.send(Self.mail(to: Self.address("silent"))) } }
            try await eventually("as many connections are open as allowed") {
                let snapshot = client.snapshot()
                return snapshot.opened == 3 && snapshot.waiting == 3
            }
            for holder in holders { holder.cancel() }
            for holder in holders {
                guard case .unanswered(let failure) = await holder.value else { return #expect(Bool(false)) }
                #expect(failure.reason == .cancelled)
            }
        }
    }

    /// Runs the body with a client of a relay that takes so many connections, and answers slow
    /// mails when the pause ends.
    private static func withRelay(
        taking connections: Int,
        limitTime: Duration = .seconds(600),
        _ body: (MailClient, ProviderSandbox, SlowPause) async throws -> Void
    ) async throws {
        let pause = SlowPause(.seconds(600))
        var configuration = SandboxConfiguration()
        configuration.mailConnections = connections
        configuration.slowPause = pause
        try await ProviderSandbox.with(configuration: configuration) { sandbox in
            try await TransferScope.$sandbox.withValue(sandbox) {
                try await Self.with {
                    $0.limitTime = limitTime
                } _: { client in
                    try await body(client, sandbox, pause)
                }
            }
        }
    }

    /// Sends mails that the relay has, but answers only when the pause ends.
    private static func hold(
        _ count: Int, _ client: MailClient, _ sandbox: ProviderSandbox
    ) async throws -> [Task<MailOutcome, Never>] {
        let mails = (0..<count).map { _ in Self.mail(to: Self.address("slow")) }
        let tasks = mails.map { mail in Task { await client.send(mail) } }
        try await eventually("the relay has them") {
            let attempts = sandbox.faultAttempts()
            return mails.allSatisfy { attempts[$0.recipient] == 1 }
        }
        return tasks
    }

    @Test(
        "a mail whose new connection is one too many for the relay waits for another connection",
        arguments: [Duration.seconds(600), .zero])
    func tooManyConnections(limitTime: Duration) async throws {
        try await Self.withRelay(taking: 2, limitTime: limitTime) { client, sandbox, pause in
            var tasks = try await Self.hold(2, client, sandbox)
            for count in 1...2 {
                let mail = Self.mail(to: Self.address("ada"))
                tasks.append(Task { await client.send(mail) })
                // The second mail opens none as long as the limit lasts.
                let opened = 2 + (limitTime == .zero ? count : 1)
                let expected = MailSnapshot(connections: 2, waiting: count, opened: opened)
                try await eventually("it waits") { client.snapshot() == expected }
            }
            pause.end()
            for task in tasks {
                guard case .answered(let reply) = await task.value else { return #expect(Bool(false)) }
                #expect(reply.isAccepted, "\(reply)")
            }
        }
    }

    @Test("a mail that the relay refuses at its end for too many connections waits for another connection")
    func tooManyAtContent() async throws {
        try await Self.withRelay(taking: 2) { client, sandbox, pause in
            let holders = try await Self.hold(1, client, sandbox)
            let mail = Self.mail(to: Self.address("crowded-once"))
            let task = Task { await client.send(mail) }
            try await eventually("it waits") {
                client.snapshot() == MailSnapshot(connections: 1, waiting: 1, opened: 2)
            }
            pause.end()
            for task in holders + [task] {
                guard case .answered(let reply) = await task.value else { return #expect(Bool(false)) }
                #expect(reply.isAccepted, "\(reply)")
            }
            #expect(sandbox.faultAttempts()[mail.recipient] == 2)
        }
    }

    @Test("the relay's answer counts once it takes no connection at all", arguments: [1, 5])
    func noConnections(count: Int) async throws {
        try await Self.withRelay(taking: 0) { client, _, _ in
            let tasks = (0..<count).map { _ in Task { await client.send(Self.mail(to: Self.address("ada"))) } }
            for task in tasks {
                let reply = MailReply(stage: .session, code: 421, text: "4.3.2 Too many connections")
                #expect(await task.value == .answered(reply))
            }
        }
    }

    @Test("a kept connection that the relay closed before reading the message is replaced at once")
    func stale() async throws {
        try await Self.with { client in
            _ = await client.send(Self.mail(to: Self.address("ada")))
            for mail in [
                Self.mail(to: Self.address("ada"), from: Self.address("busysender-once")),
                Self.mail(to: Self.address("closing-once")), Self.mail(to: Self.address("cutearly-once")),
            ] {
                let outcome = await client.send(mail)
                guard case .answered(let reply) = outcome else { return #expect(Bool(false), "\(outcome)") }
                #expect(reply.isAccepted)
            }
        }
    }

    @Test("a second connection gets only the time that the first one left")
    func restOfTime() async throws {
        _ = try await valueInTime("the second connection has the message and no time left") { limit in
            var configuration = SandboxConfiguration()
            // Each connection takes two thirds of the time.
            configuration.slowPause = SlowPause(limit * 2 / 3)
            return try await ProviderSandbox.with(configuration: configuration) { sandbox in
                try await TransferScope.$sandbox.withValue(sandbox) {
                    try await Self.with { client -> Bool? in
                        _ = await client.send(Self.mail(to: Self.address("ada")))
                        let mail = Self.mail(
                            to: Self.address("slow"), from: Self.address("cutlate-once"), timeout: limit)
                        guard case .unanswered(let failure) = await client.send(mail) else { return nil }
                        let isThere = sandbox.received().contains { $0.token == mail.recipient }
                        return failure.reason == .timeout && isThere ? true : nil
                    }
                }
            }
        }
    }

    @Test("an idle connection closes, and the next message opens another")
    func idle() async throws {
        try await Self.with {
            $0.idleTime = .milliseconds(50)
        } _: { client in
            _ = await client.send(Self.mail(to: Self.address("ada")))
            try await eventually("the idle connection closes") { client.snapshot().connections == 0 }
            let outcome = await client.send(Self.mail(to: Self.address("ada")))
            guard case .answered(let reply) = outcome else { return #expect(Bool(false), "\(outcome)") }
            #expect(reply.isAccepted && client.snapshot().opened == 2)
        }
    }

    @Test("waiting messages can be cancelled and are limited; shutting down answers every caller")
    func bounds() async throws {
        try await Self.with {
            $0.connections = 1
            $0.maximumWaiting = 1
        } _: { client in
            let holder = Task { await client.send(Self.mail(to: Self.address("silent"))) }
            try await Self.waitUntilBusy(client)
            let waiter = Task { await client.send(Self.mail(to: Self.address("ada"))) }
            try await eventually("the message waits") { client.snapshot().waiting == 1 }
            let third = await client.send(Self.mail(to: Self.address("ada")))
            #expect(third == .unanswered(TransferFailure(.overloaded)))
            waiter.cancel()
            #expect(await waiter.value == .unanswered(TransferFailure(.cancelled)))
            client.shutdown()
            guard case .unanswered(let failure) = await holder.value else { return #expect(Bool(false)) }
            #expect(failure.reason == .shutdown)
            #expect(await client.send(Self.mail(to: "a@b.c")) == .unanswered(TransferFailure(.shutdown)))
        }
    }

    @Test("urgent messages overtake waiting ones and have their own queue limit")
    func priority() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        try await Self.with {
            $0.connections = 1
            $0.maximumWaiting = 2
        } _: { client in
            let holder = Task { await client.send(Self.mail(to: Self.address("silent"))) }
            try await Self.waitUntilBusy(client)
            var waiters: [(address: String, task: Task<MailOutcome, Never>)] = []
            for priority in [TransferPriority.low, .low, .normal, .high] {
                let mail = Self.mail(to: Self.address("ada"), priority: priority)
                waiters.append((mail.recipient, Task { await client.send(mail) }))
                let count = waiters.count
                try await eventually("the message waits") { client.snapshot().waiting == count }
            }
            let excess = await client.send(Self.mail(to: Self.address("ada"), priority: .low))
            #expect(excess == .unanswered(TransferFailure(.overloaded)))
            holder.cancel()
            for waiter in waiters {
                guard case .answered(let reply) = await waiter.task.value else { return #expect(Bool(false)) }
                #expect(reply.isAccepted)
            }
            let addresses = waiters.map(\.address)
            let order = sandbox.received().compactMap { addresses.firstIndex(of: $0.token) }
            #expect(order == [3, 2, 0, 1])
        }
    }

    @Test("a waiting message times out while the only connection is busy, with its own reason")
    func noTurn() async throws {
        try await Self.with {
            $0.connections = 1
        } _: { client in
            let holder = Task { await client.send(Self.mail(to: Self.address("silent"))) }
            try await Self.waitUntilBusy(client)
            let start = ContinuousClock.now
            let late = await client.send(Self.mail(to: Self.address("ada"), timeout: .seconds(2)))
            #expect(late == .unanswered(TransferFailure(.noTurn)))
            // Half of its time; the other half is for the relay.
            #expect(start.duration(to: .now) >= .seconds(1))
            // It did not wait for the other message's end.
            holder.cancel()
            guard case .unanswered(let failure) = await holder.value else { return #expect(Bool(false)) }
            #expect(failure.reason == .cancelled)
        }
    }

    @Test("a waiting message that may no longer start when its turn comes is not sent")
    func fencedInQueue() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        try await Self.with {
            $0.connections = 1
        } _: { client in
            let mayStart = Mutex(true)
            let holder = Task { await client.send(Self.mail(to: Self.address("silent"))) }
            try await Self.waitUntilBusy(client)
            let mail = Self.mail(to: Self.address("ada"), mayStart: { mayStart.withLock { $0 } })
            let waiter = Task { await client.send(mail) }
            try await eventually("the message waits") { client.snapshot().waiting == 1 }
            mayStart.withLock { $0 = false }
            holder.cancel()
            #expect(await waiter.value == .unanswered(TransferFailure(.fenced)))
            guard case .unanswered(let failure) = await holder.value else { return #expect(Bool(false)) }
            #expect(failure.reason == .cancelled)
            #expect(!sandbox.received().contains { $0.token == mail.recipient })
        }
    }

    @Test("a message that may no longer start once the relay is ready for it is not sent")
    func fencedOnConnection() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        try await Self.with { client in
            // True when its turn comes, false after the login.
            let checks = Mutex(0)
            let mail = Self.mail(
                to: Self.address("ada"),
                mayStart: {
                    checks.withLock { checks in
                        checks += 1
                        return checks == 1
                    }
                })
            #expect(await client.send(mail) == .unanswered(TransferFailure(.fenced)))
            #expect(!sandbox.received().contains { $0.token == mail.recipient })
            let next = await client.send(Self.mail(to: Self.address("ada")))
            guard case .answered(let reply) = next else { return #expect(Bool(false), "\(next)") }
            #expect(reply.isAccepted, "the client still works")
        }
    }

    @Test(
        "addresses that could end a command are not sent",
        arguments: ["", "ada", "a@b\r\nRCPT TO:<c@d>", "a@b>", "a b@c", "a@b\0"])
    func invalid(address: String) async throws {
        try await Self.with { client in
            let failure = MailOutcome.unanswered(TransferFailure(.invalidRequest))
            #expect(await client.send(Self.mail(to: address)) == failure)
            #expect(await client.send(Self.mail(to: "ada@example.com", from: address)) == failure)
        }
    }
}
