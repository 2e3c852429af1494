// Carillon · Live.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto

/// Redis and the names of Carillon's keys, with a value for each kind of key.
package struct Live: Sendable {
    package let connection: RedisClient
    package let keys: Keyspace
    /// Appends jobs that replicas must have; nil if the master is enough.
    private let replicated: ReplicatedWrites?

    package init(
        _ connection: RedisClient,
        keys: Keyspace = Keyspace(),
        replicated: ReplicatedWrites? = nil
    ) {
        self.connection = connection
        self.keys = keys
        self.replicated = replicated
    }

    /// Appends jobs that their source then forgets; waits for replicas if that is configured.
    ///
    /// - Parameter isPatient: whether to wait for a server of a cluster that is away.
    package func append(_ batch: RedisBatch, isPatient: Bool = true) async throws(RedisError) -> [RedisReply] {
        guard let replicated else { return try await self.connection.send(batch, isPatient: isPatient) }
        return try await replicated.send(batch, isPatient: isPatient)
    }

    /// Sends a batch; in a cluster, a master that is away fails only its own commands, and at once.
    package func replies(_ batch: RedisBatch) async throws(RedisError) -> [RedisReply] {
        guard self.connection.isCluster else { return try await self.connection.send(batch) }
        do throws(RedisError) {
            return try await self.connection.send(batch, isPatient: false)
        } catch {
            return Array(repeating: .error(error), count: batch.count)
        }
    }

    /// Whether a command failed because its master in a cluster is away.
    func isOfAbsentMaster(_ reply: RedisReply) -> Bool {
        guard case .error(let error) = reply else { return false }
        return error.isOfAbsentServer && self.connection.isCluster
    }

    /// Returns Redis with the keys of the installation, for a command that has only Redis.
    ///
    /// Dispatchers write the numbers of parts to Redis at each sweep.
    package static func installed(
        on connection: RedisClient,
        replicated: ReplicatedWrites? = nil
    ) async throws(RedisError) -> Live {
        let names = Keyspace()
        let text = try await connection.send("GET", .text(names.partCount)).string()
        guard text != nil || !connection.isCluster else {
            throw RedisError(.unavailable, "no dispatcher has started on this cluster yet")
        }
        let former = try await connection.send("GET", .text(names.formerPartCounts)).string() ?? ""
        let numbers = ([text ?? "1"] + former.split(separator: " ").map(String.init)).map { Int($0) ?? 0 }
        guard numbers.allSatisfy({ (1...Keyspace.mostParts).contains($0) }) else {
            throw RedisError(.unexpectedReply, "\(names.partCount) is not a number of parts")
        }
        let keys = Keyspace(
            database: connection.database, parts: numbers[0], former: Array(numbers.dropFirst()))
        return Live(connection, keys: keys, replicated: replicated)
    }

    /// Claims Redis for the database with this identity.
    ///
    /// - Throws: ``RedisError`` with code `configuration` if another database has claimed it.
    package func claim(for installation: String) async throws(RedisError) {
        var batch = RedisBatch()
        self.claim(for: installation, in: &batch)
        batch.append("GET", .text(self.keys.installation))
        let replies = try await self.connection.send(batch)
        _ = try replies[0].checked()
        try self.refuse(replies[1], unlessFor: installation)
    }

    /// Checks that no other database than the one with this identity has claimed Redis.
    ///
    /// - Parameter timeout: the time limit.
    /// - Throws: ``RedisError`` with code `configuration` if another database has claimed it.
    package func checkClaim(for installation: String, timeout: Duration) async throws(RedisError) {
        let reply = try await self.connection.send("GET", .text(self.keys.installation), timeout: timeout)
        try self.refuse(reply, unlessFor: installation)
    }

    private func refuse(_ claim: RedisReply, unlessFor installation: String) throws(RedisError) {
        guard let owner = try claim.string(), owner != installation else { return }
        throw RedisError(
            .configuration,
            "REDIS_URL holds the work of another database, not of the one in DATABASE_URL; correct one of them, or, "
                + "if this database replaces the other, stop the other's dispatchers and run "
                + "DEL \(self.keys.installation) in Redis")
    }

    /// Adds the command that claims Redis for the database with this identity, unless another has
    /// claimed it.
    package func claim(for installation: String, in batch: inout RedisBatch) {
        batch.append("SET", .text(self.keys.installation), .text(installation), "NX")
    }

    /// Returns the number of parts in Redis if it is larger than the installation's.
    ///
    /// In that case PostgreSQL was restored to a time before the installation grew, and no
    /// dispatcher would read the jobs in the additional parts.
    package func unknownPartCount() async throws(RedisError) -> Int? {
        let text = try await self.connection.send("GET", .text(self.keys.partCount)).string()
        return text.flatMap { Int($0) }.flatMap { $0 > self.keys.parts.count ? $0 : nil }
    }

    /// Adds the commands that write the numbers of parts, and their tags, for apps and commands.
    package func writeParts(in batch: inout RedisBatch) {
        batch.append("SET", .text(self.keys.partTags), .text(self.keys.tags.joined(separator: " ")))
        batch.append("SET", .text(self.keys.partCount), .integer(Int64(self.keys.parts.count)))
        let former = self.keys.former.map { "\($0)" }.joined(separator: " ")
        batch.append("SET", .text(self.keys.formerPartCounts), .text(former))
    }

    /// The same Redis with the keys of a part, or with another spread.
    package func with(_ keys: Keyspace) -> Live {
        Live(self.connection, keys: keys, replicated: self.replicated)
    }

    package var bookmarks: Bookmarks { Bookmarks(live: self) }
    package var buckets: TokenBuckets { TokenBuckets(live: self) }
    package var catalogAnnouncer: CatalogAnnouncer { CatalogAnnouncer(live: self) }
    package var eventFeed: EventFeed { EventFeed(live: self) }
    package var eventTail: EventTail { EventTail(live: self) }
    package var jobs: JobStream { JobStream(live: self) }
    package var overflows: OverflowStreams { OverflowStreams(live: self) }
    package var providerBoard: ProviderBoard { ProviderBoard(live: self) }
    package var retries: RetrySet { RetrySet(live: self) }
    package var sendClaims: SendClaims { SendClaims(live: self) }
    package var sendingPauses: SendingPauses { SendingPauses(live: self) }
    package var survey: StreamSurvey { StreamSurvey(live: self) }
    package var testSends: TestSends { TestSends(self) }
    package var proofDeadlines: ProofDeadlines { ProofDeadlines(live: self) }
    package var usageCaps: UsageCaps { UsageCaps(live: self) }
    package var userTraces: UserTraces { UserTraces(live: self) }
    package var webhookQueues: WebhookQueues { WebhookQueues(live: self) }

    /// Returns the first moment in each sorted set of moments, in one round trip; nil for an empty
    /// set.
    func firstMoments(of keys: [String]) async throws(RedisError) -> [Timestamp?] {
        var moments: [Timestamp?] = []
        for result in try await self.firstMomentResults(of: keys, isPatient: true) { moments.append(try result.get()) }
        return moments
    }

    /// Returns the first moment in each sorted set, or an error for a set whose server is away.
    ///
    /// - Parameter isPatient: whether to wait for a server that is away.
    func firstMomentResults(
        of keys: [String],
        isPatient: Bool
    ) async throws(RedisError) -> [Result<Timestamp?, RedisError>] {
        var batch = RedisBatch()
        for key in keys { batch.append("ZRANGE", .text(key), "0", "0", "WITHSCORES") }
        var results: [Result<Timestamp?, RedisError>] = []
        for reply in try await self.connection.send(batch, isPatient: isPatient) {
            do throws(RedisError) {
                let score = try reply.strings().last.flatMap { Int64($0) }
                results.append(.success(score.map { Timestamp(milliseconds: $0) }))
            } catch {
                results.append(.failure(error))
            }
        }
        return results
    }
}

/// The Lua scripts of the folder `Scripts`.
enum StreamScripts {
    static let acknowledge = Self.script(PackageResources.acknowledge_lua)
    static let forgetPresence = Self.script(PackageResources.forget_presence_lua)
    static let moveDue = Self.script(PackageResources.move_due_lua)
    static let claimSends = Self.script(PackageResources.claim_sends_lua)
    static let endSends = Self.script(PackageResources.end_sends_lua)
    static let claimDue = Self.script(PackageResources.claim_due_lua)
    static let setPresenceState = Self.script(PackageResources.set_presence_state_lua)
    static let takeTokens = Self.script(PackageResources.take_tokens_lua)
    static let takeTurns = Self.script(PackageResources.take_turns_lua)
    static let useCap = Self.script(PackageResources.use_cap_lua)
    static let dropOverflow = Self.script(PackageResources.drop_overflow_lua)
    static let finishWebhook = Self.script(PackageResources.finish_webhook_lua)
    static let keepPause = Self.script(PackageResources.keep_pause_lua)
    static let readFirst = Self.script(PackageResources.read_first_lua)
    static let claimEntries = Self.script(PackageResources.claim_entries_lua)
    static let keepEntries = Self.script(PackageResources.keep_entries_lua)
    static let removeConsumer = Self.script(PackageResources.remove_consumer_lua)
    static let noteBookmark = Self.script(PackageResources.note_bookmark_lua)

    private static func script(_ source: [UInt8]) -> RedisScript {
        // Redis identifies scripts by SHA-1; security does not depend on it.
        let digest = Insecure.SHA1.hash(data: source).hex
        return RedisScript(source: String(decoding: source, as: UTF8.self), digest: digest)
    }
}

/// Makes every gateway and dispatcher reload the catalog.
package struct CatalogAnnouncer: Sendable {
    let live: Live

    /// Announces the catalog with this digest.
    ///
    /// - Returns: the number of processes that received it; in a cluster, of those that hold their
    ///   lease, as each server counts only its own listeners.
    package func announce(digest: String) async throws -> Int64 {
        let count = try await self.live.connection.send(
            "PUBLISH", .text(self.live.keys.catalogChannel), .text(digest)
        ).integer()
        guard self.live.keys.isSpread else { return count }
        let survey = self.live.survey
        let gateways = try await survey.nodes().count(where: \.isAlive)
        return Int64(try await survey.dispatchers().count(where: \.isAlive) + gateways)
    }
}
