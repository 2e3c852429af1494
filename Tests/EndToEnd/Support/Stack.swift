// Carillon · Stack.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import HTTP
import Logging
import Sandbox
import Storage
import Support
import Synchronization

@testable import Clients

/// A gateway and a dispatcher with their own Redis, a fresh database and the provider sandbox.
final class Stack: Sendable {
    static let secret = "end-to-end-secret-of-forty-characters-00"
    static let topic = "com.example.app"
    /// The checkout that the tests were built from, four levels above this file.
    static let checkout = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../..").standardized

    let redis: RedisServer
    let database: TestDatabase?
    let sandbox: ProviderSandbox
    let directory: TemporaryDirectory
    let connection: RedisClient
    let http: TransferClient
    /// The settings of both programs.
    let environment: [String: String]
    private let processes = Mutex<[ChildProcess]>([])

    /// Settings for tests that wait until others take over.
    static let shortLease = ["LEASE_SECONDS": "4"]

    private init(
        redis: RedisServer,
        database: TestDatabase?,
        databaseURL: String,
        sandbox: ProviderSandbox,
        directory: TemporaryDirectory,
        settings: [String: String]
    ) throws {
        self.redis = redis
        self.database = database
        self.sandbox = sandbox
        self.directory = directory
        let url = settings["REDIS_URL"] ?? redis.url
        self.connection = try TestRedis.connect(TestRedis.patientConfiguration(url: url, clientName: "test"))
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        configuration.connectTimeout = longestWait
        self.http = try TransferClient(configuration: configuration, logger: TestLog.logger)
        let catalog = Self.checkout.appending(path: "examples/catalog.d").path
        self.environment = [
            "REDIS_URL": redis.url, "DATABASE_URL": databaseURL, "CATALOG": catalog,
            "AUTH_JWT_SECRET": Self.secret, "GATEWAY_PORT": "0", "METRICS_PORT": "0",
            "FCM_CREDENTIALS": sandbox.serviceAccountPath, "FCM_ENDPOINT": sandbox.url,
            "APNS_KEY": sandbox.apnsKeyPath, "APNS_KEY_ID": sandbox.apnsKeyID, "APNS_TEAM_ID": sandbox.apnsTeamID,
            "APNS_TOPIC": Self.topic, "APNS_ENDPOINT": sandbox.url, "PROVIDER_CA": sandbox.caPath,
            "VAPID_KEY": sandbox.vapidKeyPath, "VAPID_SUBJECT": "mailto:push@example.com", "WEBPUSH_PRIVATE": "on",
        ].merging(settings) { $1 }
    }

    /// With more stacks at once, servers on a machine of two cores miss their deadlines.
    private static let slots = Permits(14)

    /// Runs `body` with a stack and takes the stack down afterwards.
    ///
    /// - Parameters:
    ///   - url: the test's own database; nil for one of the stack's own.
    ///   - settings: of both programs.
    static func with<Value>(
        sandbox configuration: SandboxConfiguration = SandboxConfiguration(),
        database url: String? = nil,
        settings: [String: String] = [:],
        _ body: (Stack) async throws -> Value
    ) async throws -> Value {
        await self.slots.acquire()
        defer { self.slots.release() }
        let directory = try TemporaryDirectory("stack")
        let redis = try await RedisServer.start()
        return try await TestDatabase.with { database in
            try await ProviderSandbox.with(configuration: configuration) { sandbox in
                let stack = try Stack(
                    redis: redis,
                    database: url == nil ? database : nil,
                    databaseURL: url ?? database.url,
                    sandbox: sandbox,
                    directory: directory,
                    settings: settings
                )
                return try await withCleanUp({ await stack.close() }) { try await body(stack) }
            }
        }
    }

    /// Queries the stack's own database.
    @discardableResult
    func query(_ sql: String, _ parameters: PostgresValue...) async throws -> PostgresResult {
        guard let pool = self.database?.pool, let result = try await pool.run([.init(sql, parameters)]).first else {
            throw FixtureError("the stack has no database of its own")
        }
        return result
    }

    private func close() async {
        await self.connection.close()
        await self.http.shutdown()
    }

    // MARK: Programs

    /// Starts a gateway and waits until it listens.
    func startGateway(name: String = "gateway", environment: [String: String] = [:]) async throws -> Gateway {
        let process = try await self.spawn("gateway", ["serve"], name: name, environment: environment)
        let line = try await process.waitForLine("ready ")
        guard let url = line.split(separator: " ").last, let port = url.split(separator: ":").last.flatMap({ Int($0) })
        else { throw FixtureError("unexpected first line of the gateway: \(line)") }
        return Gateway(process: process, port: port, http: self.http)
    }

    /// Starts a dispatcher and waits until it works and its Redis has been swept once.
    ///
    /// The first sweep of a new Redis takes what is enqueued meanwhile for lost and hands it on
    /// again, which is not sent twice, but is on record.
    ///
    /// - Parameter awaitsSweep: false if the test holds a lock that the sweep needs, or has no time
    ///   to wait.
    func startDispatcher(
        name: String = "dispatcher",
        environment: [String: String] = [:],
        awaitsSweep: Bool = true
    ) async throws -> ChildProcess {
        let process = try await self.spawn("dispatcher", ["run"], name: name, environment: environment)
        _ = try await process.waitForLine("ready ")
        // The parts of a cluster have other marks.
        if awaitsSweep, !self.connection.isCluster {
            try await eventually("the first sweep is over") {
                try await self.connection.send("EXISTS", "carillon:memory").integer() == 1
            }
        }
        return process
    }

    /// Starts a gateway, then a dispatcher, and returns the gateway.
    func startBoth(environment: [String: String] = [:]) async throws -> Gateway {
        let gateway = try await self.startGateway(environment: environment)
        _ = try await self.startDispatcher(environment: environment)
        return gateway
    }

    /// Starts a program with the stack's settings.
    func spawn(
        _ product: String,
        _ arguments: [String],
        name: String,
        environment: [String: String] = [:]
    ) async throws -> ChildProcess {
        let process = try await ChildProcess.spawn(
            TestProducts.path(product),
            arguments,
            name: name,
            environment: self.environment.merging(environment) { $1 },
            directory: self.directory.path
        )
        // A process ends when its object is released, so keep it as long as the stack.
        self.processes.withLock { $0.append(process) }
        return process
    }

    // MARK: Calls and queries

    static func token(user: String, scope: Caller.Scope? = nil, lifetime: Duration = .seconds(600)) -> String {
        TokenIssuer.issue(
            user: user,
            scope: scope,
            lifetime: lifetime,
            secret: self.secret,
            issuer: nil,
            audience: nil,
            now: Schedules.now()
        )
    }

    /// Opens something with a token that expires soon.
    ///
    /// - Parameter open: returns nil if the token expired too early; a token that lasts twice as
    ///   long is tried next, so this works on a slow machine.
    static func withExpiringToken<Opened>(
        user: String, _ open: (String) async throws -> Opened?
    ) async throws -> Opened {
        for seconds in [2, 4, 8, 16, 32, 64] {
            // Tokens are accepted for 30 seconds after they expire.
            let token = Self.token(user: user, lifetime: .seconds(seconds - 30))
            if let opened = try await open(token) { return opened }
        }
        throw FixtureError("every token expired before something could be opened by it")
    }

    /// Appends a job as an upstream app does.
    @discardableResult
    func append(_ fields: [(String, String)], stream: String = "carillon:jobs") async throws -> String {
        try await self.append(bytes: fields.map { ($0.0, Array($0.1.utf8)) }, stream: stream)
    }

    @discardableResult
    func append(bytes fields: [(String, [UInt8])], stream: String = "carillon:jobs") async throws -> String {
        var arguments: [RedisArgument] = ["XADD", .text(stream), "*"]
        for (name, value) in fields { arguments += [.text(name), .bytes(value)] }
        return try await self.connection.send(arguments).string() ?? ""
    }

    /// Appends a plain job.
    func notify(_ user: String, _ title: String, _ more: [(String, String)] = []) async throws {
        try await self.append([("user", user), ("type", "invoice_created"), ("title", title)] + more)
    }

    /// Stores a phone for each of `count` users, whose names are `prefix` and a number from 1; its
    /// token is the user's name.
    func storePhones(_ prefix: String, _ count: Int) async throws {
        try await self.query(
            """
            INSERT INTO carillon.devices (id, user_id, platform, provider, app, environment, token, registered_at,
                last_used_at)
            SELECT gen_random_uuid(), $1 || n, 'android', 'fcm', 'default', 'production', $1 || n, now(), now()
            FROM generate_series(1, $2::int4) n
            """,
            .text(prefix), .int4(Int32(count)))
    }

    /// Appends a critical job with the title `x` for the users of ``storePhones(_:_:)``.
    func push(toPhones prefix: String, _ count: Int) async throws {
        let users = (1...count).map { #""\#(prefix)\#($0)""# }.joined(separator: ",")
        try await self.append([
            ("users", "[\(users)]"), ("type", "payment_received"), ("title", "x"), ("lane", "critical"),
        ])
    }

    /// The number of entries that dispatchers have taken of a stream and not acknowledged.
    func taken(of stream: String = "carillon:jobs") async throws -> Int64 {
        // A dispatcher creates the group with its first read, and until then Redis refuses.
        let reply = try? await self.connection.send("XPENDING", .text(stream), "dispatchers")
        guard var cursor = try reply?.cursor(), try cursor.array() != nil else { return 0 }
        return try cursor.integer()
    }

    /// Reasons of dead letters, by the original entry id.
    func deadReasons() async throws -> [String: String] {
        var reasons: [String: String] = [:]
        for row in try await self.query("SELECT entry, reason FROM carillon.dead_letters ORDER BY id") {
            reasons[try row.text(0)] = try row.text(1)
        }
        return reasons
    }

    /// The status of each of a user's notifications, by title.
    func statuses(user: String) async throws -> [String: String] {
        let rows = try await self.query(
            "SELECT title, status FROM carillon.notifications WHERE user_id = $1",
            .text(user)
        )
        var statuses: [String: String] = [:]
        for row in rows { statuses[try row.text(0)] = try row.text(1) }
        return statuses
    }

    /// The titles that the sandbox received, by device token.
    func pushed() -> [String: [String]] {
        var titles: [String: [String]] = [:]
        for message in self.sandbox.received() { titles[message.token, default: []].append(Self.title(message)) }
        return titles
    }

    /// The title that a push shows; empty if it shows none.
    static func title(_ message: ReceivedMessage) -> String {
        let payload = try? JSONParser.parse(message.payload)
        let notification =
            payload?["message"]?["notification"] ?? payload?["aps"]?["alert"]
            ?? payload?["notification"] ?? payload
        return notification?["title"]?.string ?? ""
    }
}

/// A running gateway.
struct Gateway: Sendable {
    let process: ChildProcess
    let port: Int
    let http: TransferClient

    /// An answer of the API.
    struct Answer: Sendable {
        let status: Int
        let type: String?
        let body: JSONValue
        let response: TransferResponse

        func header(_ name: String) -> String? { self.response.header(name) }

        /// The fields that a problem document names.
        var faults: Set<String> {
            Set(self.body["errors"]?.array?.compactMap { $0["field"]?.string } ?? [])
        }
    }

    /// Calls the API.
    ///
    /// - Parameters:
    ///   - json: the body's text.
    ///   - patience: the time limit. It exceeds every wait in a test, so that a slow machine ends
    ///     no call early; the gateway parks a poll for 40 s.
    ///   - retriesOutages: whether to call again when Redis or PostgreSQL cannot serve the call, as
    ///     on a machine that stalls; false if the test causes that.
    func call(
        _ method: TransferRequest.Method,
        _ path: String,
        token: String?,
        json: String? = nil,
        headers: [(name: String, value: String)] = [],
        patience: Duration = longestWait,
        retriesOutages: Bool = true
    ) async throws -> Answer {
        let authorization = token.map { [(name: "authorization", value: "Bearer \($0)")] } ?? []
        let request = TransferRequest(
            method,
            url: "http://127.0.0.1:\(self.port)\(path)",
            headers: authorization + headers + [(name: "content-type", value: "application/json")],
            body: json.map { Array($0.utf8) } ?? [],
            timeout: patience,
            maximumResponseBytes: 16 * 1024 * 1024
        )
        let response = try await eventualValue("\(method.rawValue) \(path) meets no outage") {
            let response = try await self.http.answer(request, to: "\(method.rawValue) \(path)")
            // A refusal for another reason names another pause.
            let isOutage = response.status == 503 && response.header("retry-after") == "2"
            return retriesOutages && isOutage ? nil : response
        }
        let body = response.body.isEmpty ? JSONValue.null : (try? JSONParser.parse(response.body)) ?? .null
        return Answer(
            status: response.status,
            type: response.header("content-type"),
            body: body,
            response: response
        )
    }

    /// Registers a device and returns its id.
    @discardableResult
    func register(user: String, platform: String, token: String, name: String = "phone") async throws -> String {
        let members = [("platform", platform), ("token", token), ("name", name)]
        let body = JSONValue.object(members.map { JSONMember($0.0, .string($0.1)) })
        let answer = try await self.call(
            .post,
            "/v1/devices",
            token: Stack.token(user: user),
            json: String(decoding: JSONWriter.bytes(of: body), as: UTF8.self)
        )
        guard answer.status == 201, let id = answer.body["id"]?.string else {
            throw FixtureError("device not registered: \(answer.status)")
        }
        return id
    }
}

extension Stack {
    /// The text of a file of the checkout.
    static func text(_ path: String) throws -> String {
        try String(contentsOf: Self.checkout.appending(path: path), encoding: .utf8)
    }

    /// Writes or replaces the stack's own catalog and returns the setting that names it.
    @discardableResult
    func catalog(_ text: String) throws -> [String: String] {
        let path = self.directory.file("catalog.yaml")
        try Data(text.utf8).write(to: URL(filePath: path), options: .atomic)
        return ["CATALOG": path]
    }

    /// A user's titles and bodies, oldest first.
    func texts(user: String) async throws -> [[String]] {
        let rows = try await self.query(
            "SELECT title, body FROM carillon.notifications WHERE user_id = $1 ORDER BY id", .text(user))
        return try rows.map { [try $0.text(0), try $0.text(1)] }
    }

    /// All entries of the events stream, in order, as their non-empty fields.
    func events() async throws -> [[String: String]] {
        try await self.connection.entries(of: "carillon:events").map { entry in
            var event = entry.texts.filter { !$0.value.isEmpty }
            event["id"] = entry.id
            return event
        }
    }

    /// The kinds of a user's events, in order.
    func kinds(user: String) async throws -> [String] {
        try await self.events().filter { $0["user"] == user }.compactMap { $0["event"] }
    }
}
