// Carillon · CrashTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import Sandbox
import Storage
import Support
import Testing

/// Any process may be killed at any moment; no appended job is lost.
@Suite(.timeLimit(.minutes(10)))
struct CrashTests {
    /// Runs `body` with several sandboxes.
    private static func withSandboxes(_ count: Int, _ body: ([ProviderSandbox]) async throws -> Void) async throws {
        guard count > 0 else { return try await body([]) }
        try await ProviderSandbox.with { sandbox in
            try await Self.withSandboxes(count - 1) { try await body($0 + [sandbox]) }
        }
    }

    @Test("every job reaches its user while dispatchers and gateways are killed")
    func kills() async throws {
        let count = 1_000
        let kills = [200, 400, 600, 800]
        try await Stack.with(settings: Stack.shortLease) { stack in
            // Each dispatcher has a provider of its own, which shows who sent a push.
            try await Self.withSandboxes(2 + kills.count) { sandboxes in
                func startDispatcher(_ number: Int) async throws -> ChildProcess {
                    let sandbox = sandboxes[number]
                    return try await stack.startDispatcher(
                        name: "dispatcher-\(number)",
                        environment: [
                            "FCM_CREDENTIALS": sandbox.serviceAccountPath, "FCM_ENDPOINT": sandbox.url,
                            "PROVIDER_CA": sandbox.caPath,
                        ])
                }
                func pushes() -> [(title: String, dispatcher: Int, at: Date)] {
                    sandboxes.enumerated().flatMap { number, sandbox in
                        sandbox.received().map { (title: Stack.title($0), dispatcher: number, at: $0.at) }
                    }
                }
                var gateway = try await stack.startGateway(name: "gateway-0")
                var dispatchers = [try await startDispatcher(0), try await startDispatcher(1)]
                let offline = (0..<10).map { "offline-\($0)" }
                for user in offline {
                    try await gateway.register(user: user, platform: "android", token: "token-\(user)")
                }
                var sockets = [try await TestSocket.synced(port: gateway.port, user: "online")]
                var killedAt: [Date] = []
                for number in 0..<count {
                    let user = number % 2 == 0 ? "online" : offline[number / 2 % offline.count]
                    var fields = [("user", user), ("type", "payment_received"), ("title", "job \(number)")]
                    if number % 3 == 0 { fields.append(("id", "id-\(number)")) }
                    try await stack.append(fields)
                    guard kills.contains(number) else { continue }
                    // The older one of the two that run.
                    let oldest = killedAt.count
                    killedAt.append(.now)
                    dispatchers[oldest].send(SIGKILL)
                    dispatchers.append(try await startDispatcher(dispatchers.count))
                    if number == 400 {
                        gateway.process.send(SIGKILL)
                        gateway = try await stack.startGateway(name: "gateway-\(number)")
                        sockets.append(try await TestSocket.synced(port: gateway.port, user: "online"))
                    }
                }
                let last = gateway
                let all = sockets
                try await eventually("every online job reached the client") {
                    // A socket or a page of the inbox may bring it.
                    let titles = try await Self.inbox(last, user: "online").union(all.flatMap(\.titles))
                    return titles.count == count / 2
                }
                try await eventually("every offline job was pushed") {
                    Set(pushes().map { $0.title }).count == count / 2
                }
                try await Self.waitUntilDone(stack)
                // A push repeats only if its dispatcher died between the provider's answer and its
                // record; another dispatcher sends the second one.
                for (title, repeats) in Dictionary(grouping: pushes(), by: { $0.title }) {
                    for (position, one) in repeats.enumerated() {
                        for other in repeats.dropFirst(position + 1) {
                            let isOfAKill = [(one, other), (other, one)].contains { first, second in
                                first.dispatcher < killedAt.count && killedAt[first.dispatcher] < second.at
                            }
                            #expect(
                                isOfAKill && one.dispatcher != other.dispatcher,
                                "\(title) was pushed twice, but its dispatcher had not died")
                        }
                    }
                }
            }
        }
    }

    /// Waits until no job or delivery of `kills` is left that a dispatcher could send again.
    private static func waitUntilDone(_ stack: Stack) async throws {
        let left = "return redis.call('XLEN', KEYS[1]) + redis.call('XLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3])"
        try await eventually("no work is left") {
            try await stack.connection.send(
                "EVAL", .text(left), "3", "carillon:jobs", "carillon:{fcm}:deliveries:critical",
                "carillon:{fcm}:retry:critical"
            ).integer() == 0
        }
    }

    /// The titles of the whole inbox, page by page.
    private static func inbox(_ gateway: Gateway, user: String) async throws -> Set<String> {
        let token = Stack.token(user: user)
        var titles: Set<String> = []
        var path = "/v1/notifications?limit=100"
        while true {
            let page = try await gateway.call(.get, path, token: token).body
            titles.formUnion((page["notifications"]?.array ?? []).compactMap { $0["title"]?.string })
            guard let cursor = page["next_cursor"]?.string else { return titles }
            path = "/v1/notifications?limit=100&cursor=\(cursor)"
        }
    }

    @Test("a job whose reply never reached the dispatcher is still processed")
    func lostReply() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "heard")])
            try await eventually("it works before") { socket.titles == ["heard"] }
            let consumer = try #require(try await Self.consumer(of: "carillon:jobs", in: stack))
            dispatcher.send(SIGSTOP)
            try await eventually("its last reads have ended") {
                try await stack.connection.send("INFO", "clients").string()?.contains("blocked_clients:0") == true
            }
            // Redis hands the job to the dispatcher's consumer, and the dispatcher never sees the
            // reply.
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "unheard")])
            try await stack.connection.send(
                "XREADGROUP", "GROUP", "dispatchers", .text(consumer), "STREAMS", "carillon:jobs", ">"
            )
            dispatcher.send(SIGCONT)
            try await eventually("the dispatcher finds it") {
                socket.titles == ["heard", "unheard"]
            }
            try await eventually("nothing is pending") {
                try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0
            }
            #expect(try await dispatcher.stop() == .code(0))
        }
    }

    /// The only consumer of a stream.
    private static func consumer(of stream: String, in stack: Stack) async throws -> String? {
        let reply = try await stack.connection.send("XINFO", "CONSUMERS", .text(stream), "dispatchers")
        guard var cursor = try reply.cursor(), try cursor.array() == 1, try cursor.array() != nil,
            try cursor.string() == "name"
        else { return nil }
        return try cursor.string()
    }

    @Test("a stalled dispatcher's jobs are taken over when its lease expires")
    func stalledDispatcher() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            let stalled = try await stack.startDispatcher(name: "stalled")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            // The lock holds the batch in the database after the dispatcher has taken it.
            let pool = try #require(stack.database?.pool)
            try await pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.inboxes IN ACCESS EXCLUSIVE MODE")
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "held")])
                try await eventually("the job is taken") {
                    try await stack.taken() == 1
                }
                stalled.send(SIGSTOP)
            }
            _ = try await stack.startDispatcher(name: "second")
            try await eventually("the second one delivers it") { socket.titles == ["held"] }
            stalled.send(SIGCONT)
            try await eventually("nothing is pending") {
                try await stack.taken() == 0
            }
            #expect(socket.titles == ["held"])
            #expect(try await stack.statuses(user: "ada").count == 1)
        }
    }

    @Test("a dispatcher that stalled until others took over repeats none of their pushes")
    func wokenDispatcher() async throws {
        var configuration = SandboxConfiguration()
        configuration.slowPause = SlowPause(.seconds(600))
        let pause = configuration.slowPause
        try await Stack.with(sandbox: configuration, settings: Stack.shortLease) { stack in
            // Slow calls use up every slot for calls, so the other deliveries stay in flight
            // without a call.
            let (calls, count) = (8, 40)
            try await stack.storePhones("slow-", calls)
            try await stack.storePhones("phone-", count)
            let first = try await stack.startDispatcher(name: "first", environment: ["PROVIDER_CALLS": "\(calls)"])
            let stream = Keyspace().deliveries(.fcm, .critical)
            let group = ConsumerGroup(stream: stream, consumer: "", connection: stack.connection)
            func pending() async throws -> Int { try await group.consumers().reduce(0) { $0 + $1.pending } }
            try await stack.push(toPhones: "slow-", calls)
            try await eventually("its calls are in flight") { try await pending() == calls }
            try await stack.push(toPhones: "phone-", count)
            try await eventually("it has more deliveries in flight than slots for calls") {
                try await pending() > calls + 4
            }
            first.send(SIGSTOP)
            _ = try await stack.startDispatcher(name: "second")
            func pushed() -> [[String]] { stack.pushed().filter { $0.key.hasPrefix("phone-") }.map(\.value) }
            try await eventually("another has pushed all of them") { pushed().count == count }
            first.send(SIGCONT)
            pause.end()
            // It stops once it has finished all in-flight deliveries.
            #expect(try await first.stop() == .code(0))
            #expect(pushed().allSatisfy { $0 == ["x"] })
        }
    }

    @Test("a dead dispatcher's deliveries are taken over at once, however slow the provider is")
    func takenOver() async throws {
        var configuration = SandboxConfiguration()
        let pause = SlowPause(.seconds(600))
        configuration.slowPause = pause
        try await Stack.with(sandbox: configuration, settings: Stack.shortLease) { stack in
            let count = 32
            try await stack.storePhones("slow-", count)
            let first = try await stack.startDispatcher(name: "first")
            try await stack.push(toPhones: "slow-", count)
            let group = ConsumerGroup(
                stream: Keyspace().deliveries(.fcm, .critical), consumer: "", connection: stack.connection)
            func pending() async throws -> Int { try await group.consumers().reduce(0) { $0 + $1.pending } }
            try await eventually("all are in flight") { try await pending() == count }
            first.send(SIGKILL)
            try await first.waitForExit()
            try await stack.endLeases()
            let gone = Set(try await group.consumers().map(\.name))
            _ = try await stack.startDispatcher(name: "second")
            try await eventually("another works on many of them at once") {
                try await group.consumers().contains { !gone.contains($0.name) && $0.pending >= 8 }
            }
            // A dispatcher claims as many as it can work on, and the rest as calls end.
            try await eventually("it has claimed all of them") {
                pause.end()
                return try await group.consumers().allSatisfy { !gone.contains($0.name) || $0.pending == 0 }
            }
            try await eventually("all are recorded") {
                pause.end()
                let others = "SELECT 1 FROM carillon.notifications WHERE status <> 'sent' LIMIT 1"
                return try await stack.query(others).isEmpty
            }
        }
    }
}

/// SIGTERM finishes what was taken and takes nothing more.
@Suite(.timeLimit(.minutes(10)))
struct StopTests {
    @Test("a dispatcher stopped at work loses and repeats nothing and exits with 0")
    func dispatcher() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let first = try await stack.startDispatcher(name: "first")
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            var count = 0
            func append(_ more: Int) async throws {
                var batch = RedisBatch()
                for number in count..<count + more {
                    let user: RedisArgument = number % 2 == 0 ? "online" : "offline"
                    batch.append(
                        "XADD", "carillon:jobs", "*", "user", user, "type", "payment_received", "title",
                        .text("job \(number)"))
                }
                try await stack.connection.run(batch)
                count += more
            }
            try await append(1_000)
            try await eventually("it is at work") { !socket.titles.isEmpty }
            first.send(SIGTERM)
            // More jobs come until it has ended, and after that.
            try await eventually("it ends") {
                try await append(2)
                return first.exit != nil
            }
            try await append(500)
            #expect(first.exit == .code(0))
            // It settled everything it had taken before it left.
            for stream in ["carillon:jobs", "carillon:jobs:critical", "carillon:{fcm}:deliveries:normal"] {
                #expect(try await stack.taken(of: stream) == 0, "\(stream)")
            }

            let second = try await stack.startDispatcher(name: "second")
            let online = stride(from: 0, to: count, by: 2).map { "job \($0)" }
            let offline = stride(from: 1, to: count, by: 2).map { "job \($0)" }
            try await eventually("every job reached the socket") {
                socket.titles.count >= online.count
            }
            try await eventually("every job reached the phone") {
                (stack.pushed()["phone"]?.count ?? 0) >= offline.count
            }
            #expect(socket.titles.sorted() == online.sorted())
            #expect(stack.pushed()["phone"]?.sorted() == offline.sorted())
            #expect(try await second.stop() == .code(0))
        }
    }

    @Test("jobs that wait for PostgreSQL keep no other stage of a stopping dispatcher at work")
    func stuck() async throws {
        try await Stack.with { stack in
            let dispatcher = try await stack.startDispatcher()
            let pool = try #require(stack.database?.pool)
            /// Whether a stage waits for entries of a stream.
            func isReading() async throws -> Bool {
                let clients = try await stack.connection.send("CLIENT", "LIST").string() ?? ""
                return clients.split(separator: "\n").contains {
                    $0.contains(" flags=b ") && $0.contains(" cmd=xreadgroup ")
                }
            }
            try await pool.transaction { transaction in
                // The job waits for this inbox.
                try await transaction.query("INSERT INTO carillon.inboxes (user_id) VALUES ('ada')")
                try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "n1")])
                try await eventually("the job is taken") { try await stack.taken() == 1 }
                try await eventually("others are awaited") { try await isReading() }
                dispatcher.send(SIGTERM)
                // The limit of the shutdown, a minute, would end them as well, but lose the job.
                try await eventually("nothing more is read") { try await !isReading() }
                #expect(dispatcher.exit == nil)
            }
            #expect(try await dispatcher.waitForExit() == .code(0))
            #expect(try await stack.statuses(user: "ada").keys.sorted() == ["n1"])
        }
    }

    /// As process 1 of a container, a program ignores the signals that it does not handle.
    @Test(
        "SIGTERM and SIGINT end a program that waits for PostgreSQL, with 0; SIGHUP does not",
        arguments: [
            ("gateway", "serve", SIGTERM), ("gateway", "serve", SIGINT), ("dispatcher", "run", SIGTERM),
            ("dispatcher", "run", SIGINT),
        ] as [(String, String, Int32)])
    func early(program: String, command: String, signal: Int32) async throws {
        try await Stack.with { stack in
            let process = try await stack.spawn(
                program, [command], name: "early",
                environment: ["DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"])
            try await eventually("it waits for PostgreSQL") { process.errors().contains("postgres connection failed") }
            // Signals are handled in the order of their numbers, so SIGHUP comes first.
            process.send(SIGHUP)
            process.send(signal)
            #expect(try await process.waitForExit() == .code(0))
        }
    }

    @Test(
        "SIGTERM and SIGINT end a migration that waits for another, with a shell's exit code",
        arguments: [SIGTERM, SIGINT])
    func unfinishedMigration(signal: Int32) async throws {
        try await Stack.with { stack in
            let pool = try #require(stack.database?.pool)
            try await pool.transaction { transaction in
                // The lock that every migration takes.
                try await transaction.query("SELECT pg_advisory_xact_lock(\(0x6361_7269_6C6C_6F6E))")
                let process = try await stack.spawn("gateway", ["migrate"], name: "migrate")
                try await eventually("it waits") {
                    try await !transaction.query(
                        """
                        SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                        """
                    ).isEmpty
                }
                process.send(signal)
                #expect(try await process.waitForExit() == .signal(signal))
            }
        }
    }

    @Test(
        "SIGTERM and SIGINT end a command that waits for events, and a script around it",
        arguments: [SIGTERM, SIGINT])
    func unfinishedCommand(signal: Int32) async throws {
        try await Stack.with { stack in
            try await stack.connection.send("XADD", "carillon:events", "*", "event", "sent", "user", "ada")
            let process = try await stack.spawn("dispatcher", ["events", "--follow", "--json"], name: "events")
            _ = try await process.waitForLine("{")
            process.send(signal)
            #expect(try await process.waitForExit() == .signal(signal))
        }
    }

    @Test("a dispatcher that waits for Redis listens and is not ready, and SIGTERM ends it with 0")
    func starting() async throws {
        try await Stack.with { stack in
            let port = try FreePort.next()
            let process = try await stack.spawn(
                "dispatcher", ["run"], name: "starting",
                environment: [
                    "METRICS_PORT": "\(port)", "REDIS_URL": "redis://127.0.0.1:\(try FreePort.next())/0",
                    "LEASE_SECONDS": "4",
                ])
            try await eventually("it says that it is starting") {
                guard
                    case .answered(let answer) = await stack.http.perform(
                        .init(.get, url: "http://127.0.0.1:\(port)/readyz"))
                else { return false }
                let text = String(decoding: answer.body, as: UTF8.self)
                return answer.status == 503 && text == "starting, redis: unavailable\n"
            }
            #expect(!process.errors().contains("dispatcher started"))
            #expect(process.output().isEmpty)
            process.send(SIGTERM)
            #expect(try await process.waitForExit() == .code(0))
        }
    }

    @Test(
        "a program on `::` answers over IPv4 too, and prints its address in brackets",
        arguments: ["gateway", "dispatcher"])
    func bothFamilies(program: String) async throws {
        try await Stack.with { stack in
            let (command, setting) = program == "gateway" ? ("serve", "GATEWAY_HOST") : ("run", "METRICS_HOST")
            let process = try await stack.spawn(program, [command], name: program, environment: [setting: "::"])
            let line = try await process.waitForLine("ready ")
            let port = try #require(line.wholeMatch(of: #/ready http:\/\/\[::\]:(\d+)/#)?.output.1)
            let response = try await stack.http.answer(
                .init(.get, url: "http://127.0.0.1:\(port)/healthz", timeout: longestWait))
            #expect(response.status == 200)
        }
    }

    @Test(
        "a port already in use ends the program before it takes a lease, and names the setting",
        arguments: ["gateway", "dispatcher"])
    func takenPort(program: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(name: "first")
            let (command, setting) = program == "gateway" ? ("serve", "GATEWAY_PORT") : ("run", "METRICS_PORT")
            let process = try await stack.spawn(
                program,
                [command],
                name: "second",
                environment: [setting: "\(gateway.port)"]
            )
            #expect(try await process.waitForExit() == .code(1))
            let lines = process.errors().split(separator: "\n")
            let words = "\(program): \(setting): cannot listen on 127.0.0.1:\(gateway.port)"
            #expect(lines.count == 1 && lines.first?.hasPrefix(words) == true, "\(lines)")
            #expect(process.output().isEmpty)
            #expect(try await stack.connection.send("EXISTS", "carillon:dispatchers").integer() == 0)
            #expect(try await stack.connection.send("ZCARD", "carillon:nodes").integer() <= 1)
        }
    }

    @Test(
        "a host that is not this machine's ends the program with an error that names the setting",
        arguments: ["gateway", "dispatcher"],
        // An address of documentation (RFC 5737), and a name that never resolves (RFC 6761).
        [("192.0.2.1", "Cannot assign requested address"), ("nowhere.invalid", "is not a known host")])
    func wrongHost(program: String, host: (name: String, reason: String)) async throws {
        try await Stack.with { stack in
            let (command, setting) = program == "gateway" ? ("serve", "GATEWAY_HOST") : ("run", "METRICS_HOST")
            let process = try await stack.spawn(
                program, [command], name: "wrong-host", environment: [setting: host.name])
            #expect(try await process.waitForExit() == .code(1))
            let lines = process.errors().split(separator: "\n")
            let words = "\(program): \(setting): cannot listen on \(host.name):0: "
            #expect(lines.count == 1 && lines.first?.hasPrefix(words) == true, "\(lines)")
            #expect(lines.first?.contains(host.reason) == true, "\(lines)")
        }
    }
}
