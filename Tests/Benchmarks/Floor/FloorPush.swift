// Carillon · FloorPush.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Crypto
import Foundation
import Storage
import Support
import _CryptoExtras

/// Jobs to FCM for offline users, on record, by Carillon or by `Yardsticks/Floor`.
struct FloorPush {
    private static let stream = Keyspace().jobs(.critical)

    /// The folder of the compiled programs.
    let yardsticks: String
    let users: Int
    let warmUp: Int

    /// Measures the rate and the costs.
    func measure(_ contender: FloorContender, jobs: Int, in stack: ScratchStack) async throws -> [String: Double] {
        try await self.run(contender, jobs: jobs, in: stack) { dispatcher, sandbox, send in
            let programs = ["dispatcher": dispatcher, "sandbox": sandbox]
            let before = try await FloorCounters.read(programs, in: stack)
            let elapsed = try await seconds(send)
            let after = try await FloorCounters.read(programs, in: stack)
            var figures = after.perJob(since: before, jobs: jobs)
            figures["per_second"] = Double(jobs) / elapsed
            return figures
        }
    }

    /// Counts allocations and, where the machine can, instructions of a job.
    func count(_ contender: FloorContender, jobs: Int, in stack: ScratchStack) async throws -> [String: Double] {
        let work = FloorWork(names: ["dispatcher"], yardsticks: self.yardsticks, folder: stack.folder)
        let settings = work.settings("dispatcher")
        return try await self.run(contender, jobs: jobs, settings: settings, in: stack) { dispatcher, _, send in
            let counters = try await work.watch(["dispatcher": dispatcher])
            let before = try await counters.values()
            try await send()
            let after = try await counters.values()
            return after.reduce(into: [:]) { $0[$1.key] = ($1.value - (before[$1.key] ?? 0)) / Double(jobs) }
        }
    }

    /// Starts the programs, warms them up and measures.
    ///
    /// - Parameter body: gets the dispatcher, the sandbox, and a function that sends the jobs and
    ///   waits until they are on record.
    private func run(
        _ contender: FloorContender,
        jobs: Int,
        settings: [String: String] = [:],
        in stack: ScratchStack,
        _ body: (ChildProcess, ChildProcess, () async throws -> Void) async throws -> [String: Double]
    ) async throws -> [String: Double] {
        let names = (0..<self.users).map { "floor-\($0)" }
        try await OfflineUsers.register(names, in: stack.database.pool)
        try await stack.database.pool.withScriptConnection { connection in
            try connection.execute("VACUUM ANALYZE carillon.devices")
            try connection.execute("CHECKPOINT")
        }
        // Its slow tokens do not occur here.
        let sandbox = try await stack.sandbox(slow: 30_000)
        let dispatcher = try await self.dispatcher(contender, sandbox, settings: settings, in: stack)
        _ = try await dispatcher.waitForLine("ready")
        let load = JobLoad(redis: stack.redis.connection, stream: Self.stream, type: "payment_received")
        try await load.append(self.warmUp, to: names)
        try await self.drain(dispatcher, in: stack)
        let figures = try await body(dispatcher, sandbox.program) {
            try await load.append(jobs, to: names)
            try await self.drain(dispatcher, in: stack)
        }
        try await self.check(contender, sandbox, total: self.warmUp + jobs, in: stack)
        try await dispatcher.stop()
        try await sandbox.program.stop()
        return figures
    }

    private func dispatcher(
        _ contender: FloorContender,
        _ sandbox: ScratchSandbox,
        settings: [String: String],
        in stack: ScratchStack
    ) async throws -> ChildProcess {
        if contender == .carillon {
            return try await stack.dispatcher(settings: sandbox.settings.merging(settings) { $1 })
        }
        let access = try await FCMAccess(sandbox)
        return try await ChildProcess.spawn(
            "\(self.yardsticks)/floor-push",
            [stack.redis.url, stack.database.url, Self.stream, access.url, access.authority, access.token],
            environment: settings, directory: stack.folder)
    }

    /// Waits until no job and no delivery is left; both go when the next step is on record.
    private func drain(_ dispatcher: ChildProcess, in stack: ScratchStack) async throws {
        let streams = [Self.stream] + Lane.allCases.map { Keyspace().deliveries(.fcm, $0) }
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            // Jobs first: a delivery is appended before its job is acknowledged.
            var batch = RedisBatch()
            for stream in streams { batch.append("XLEN", .text(stream)) }
            var left: Int64 = 0
            for reply in try await stack.redis.connection.send(batch) { left += try reply.integer() }
            if left == 0 { return }
            guard dispatcher.exit == nil, ContinuousClock.now < deadline else {
                throw ValidationError("\(left) entries are left: \(dispatcher.tail())")
            }
            // Poll, because Redis does not signal an empty stream.
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    /// Checks that each job was accepted by the provider and recorded.
    private func check(
        _ contender: FloorContender,
        _ sandbox: ScratchSandbox,
        total: Int,
        in stack: ScratchStack
    ) async throws {
        let statement =
            contender == .carillon
            ? "SELECT count(*) FROM carillon.delivery_attempts WHERE outcome = 'accepted'"
            : "SELECT count(*) FROM floor.attempts WHERE status = 200"
        let recorded = try await stack.database.pool.query(statement).first?.int8(0) ?? 0
        let accepted = try await sandbox.control.count("fcm").accepted
        guard recorded == Int64(total), accepted == total else {
            throw ValidationError("\(accepted) pushes arrived and \(recorded) are recorded instead of \(total)")
        }
    }
}

/// An access token for a sandbox's FCM, as a service account gets it (RFC 7523).
private struct FCMAccess {
    private struct Account: Decodable {
        let project_id, private_key_id, private_key, client_email, token_uri: String
    }

    /// The address of `messages:send`.
    let url: String
    /// The file with the trusted certificate.
    let authority: String
    let token: String

    init(_ sandbox: ScratchSandbox) async throws {
        guard let file = sandbox.settings["FCM_CREDENTIALS"], let endpoint = sandbox.settings["FCM_ENDPOINT"],
            let authority = sandbox.settings["PROVIDER_CA"]
        else { throw ValidationError("the sandbox has no FCM") }
        let account = try JSONDecoder().decode(Account.self, from: try Data(contentsOf: URL(fileURLWithPath: file)))
        self.url = "\(endpoint)/v1/projects/\(account.project_id)/messages:send"
        self.authority = authority
        self.token = try await Self.token(of: account, authority: authority)
    }

    private static func token(of account: Account, authority: String) async throws -> String {
        let assertion = try self.assertion(of: account)
        let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"
        let request = TransferRequest(
            .post,
            url: account.token_uri,
            headers: [(name: "content-type", value: "application/x-www-form-urlencoded")],
            body: Array("\(grant)&assertion=\(assertion)".utf8)
        )
        var configuration = TransferConfiguration()
        configuration.caFile = authority
        let client = try TransferClient(configuration: configuration, logger: Environment.logger)
        let outcome = await client.perform(request)
        await client.shutdown()
        guard case .answered(let response) = outcome, response.status == 200,
            let answer = try JSONSerialization.jsonObject(with: Data(response.body)) as? [String: Any],
            let token = answer["access_token"] as? String
        else { throw ValidationError("the sandbox issued no access token: \(outcome)") }
        return token
    }

    private static func assertion(of account: Account) throws -> String {
        let now = Int(Date.now.timeIntervalSince1970)
        let claims: [String: Any] = [
            "iss": account.client_email, "scope": "https://www.googleapis.com/auth/firebase.messaging",
            "aud": account.token_uri, "iat": now, "exp": now + 3_600,
        ]
        let header = ["alg": "RS256", "typ": "JWT", "kid": account.private_key_id]
        let unsigned =
            try Base64.url.encode(JSONSerialization.data(withJSONObject: header)) + "."
            + Base64.url.encode(JSONSerialization.data(withJSONObject: claims))
        let key = try _RSA.Signing.PrivateKey(pemRepresentation: account.private_key)
        let signature = try key.signature(for: SHA256.hash(data: Data(unsigned.utf8)), padding: .insecurePKCS1v1_5)
        return unsigned + "." + Base64.url.encode(signature.rawRepresentation)
    }
}
