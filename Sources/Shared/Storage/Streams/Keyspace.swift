// Carillon · Keyspace.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The names of all Redis keys.
///
/// A command or script uses keys of one hash slot only. For one Redis, tags such as `{fcm}` ensure
/// that. In a cluster, keys are spread over parts: a user's keys, and the work for that user, are
/// all in one part, and a part is one slot. Keys that belong to no user have the same name with and
/// without parts.
package struct Keyspace: Sendable {
    /// The consumer group of every stream.
    static let group = "dispatchers"
    /// Stands for the stream of a job that came from a schedule.
    package static let schedules = "schedules"
    /// The most parts of an installation.
    package static let mostParts = 256
    /// The number of sorted sets that share the deadlines of proofs of one Redis.
    private static let shardsOfOneRedis = 16

    /// Shared by all parts, so that a copy is one reference.
    private final class Layout: Sendable {
        let prefix: String
        /// The end of the names of channels for all processes; empty for database 0.
        let channelSuffix: String
        /// The tags of all parts; empty for one Redis.
        let tags: [String]
        /// The numbers of parts before the installation grew, and their tags; none is shared.
        let former: [Int]
        let formerTags: [String]

        init(prefix: String, database: Int, parts: Int, former: [Int]) {
            self.prefix = prefix
            self.channelSuffix = database == 0 ? "" : ":\(database)"
            self.tags = parts > 1 ? PartTags.all(parts) : []
            self.former = former
            self.formerTags = former.filter { $0 > 1 }.flatMap { PartTags.all($0) }
        }
    }

    private let layout: Layout
    /// The part's number; nil for the plain names of a single Redis, and for former parts.
    package let index: Int?
    private let tag: String?

    private var prefix: String { self.layout.prefix }
    /// The tags of all parts, in order; empty for one Redis.
    var tags: [String] { self.layout.tags }

    /// - Parameters:
    ///   - database: the number of Redis' database.
    ///   - parts: the number of parts; 1 for the names of one Redis.
    ///   - former: the numbers that the installation had before it grew.
    package init(prefix: String = "carillon:", database: Int = 0, parts: Int = 1, former: [Int] = []) {
        self.init(
            Layout(prefix: prefix, database: database, parts: parts, former: former), index: nil, tag: nil)
    }

    private init(_ layout: Layout, index: Int?, tag: String?) {
        self.layout = layout
        self.index = index
        self.tag = tag
    }

    private init(_ layout: Layout, index: Int) { self.init(layout, index: index, tag: layout.tags[index]) }

    /// Returns the names with this tag; nil for the plain ones.
    private func tagged(_ tag: String?) -> Keyspace { Keyspace(self.layout, index: nil, tag: tag) }

    // MARK: Parts

    /// Whether keys are spread over parts.
    package var isSpread: Bool { !self.tags.isEmpty }

    /// The numbers of parts before the installation grew.
    package var former: [Int] { self.layout.former }

    /// The parts of a spread keyspace; itself for one Redis.
    package var parts: [Keyspace] {
        self.isSpread ? self.tags.indices.map { Keyspace(self.layout, index: $0) } : [self]
    }

    /// The names outside the parts of a spread keyspace: the plain ones, and those of former parts.
    ///
    /// Apps may append jobs under them until they learn of the new ones.
    package var otherSources: [Keyspace] {
        self.isSpread ? [self.tagged(nil)] + self.layout.formerTags.map { self.tagged($0) } : []
    }

    /// All keyspaces with streams of jobs: the parts and ``otherSources``.
    package var jobSources: [Keyspace] { self.parts + self.otherSources }

    /// The part in which a user's keys are; itself for one Redis.
    package func part(of user: String) -> Keyspace {
        self.isSpread ? Keyspace(self.layout, index: self.index(of: user)) : self
    }

    /// The number of a user's part in a spread keyspace.
    func index(of user: String) -> Int { Int(FNV1a.hash32(user) % UInt32(self.tags.count)) }

    /// The name of a key of this part.
    private func own(_ name: String) -> String {
        guard let tag else { return self.prefix + name }
        return "\(self.prefix){\(tag)}:\(name)"
    }

    /// The name of a user's key in the user's part; nil for one Redis.
    private func spread(_ name: @autoclosure () -> String, _ user: String) -> String? {
        self.isSpread ? "\(self.prefix){\(self.tags[self.index(of: user)])}:\(name()):\(user)" : nil
    }

    /// The key with the identity of the database whose work this Redis has.
    package var installation: String { self.prefix + "installation" }

    /// The key that tells commands the number of parts.
    package var partCount: String { self.prefix + "parts" }

    /// The key that tells apps the tags of all parts.
    package var partTags: String { self.prefix + "tags" }

    /// The key that tells commands the former numbers of parts.
    package var formerPartCounts: String { self.prefix + "parts:former" }

    /// An external name as part of a hash tag; different names stay different.
    ///
    /// Redis sees no tag in `{}`: for a name that is empty or begins with `}`, the keys of a script
    /// would lie in several slots.
    private static func tag(_ name: String) -> String {
        switch name.utf8.first {
        case nil, UInt8(ascii: "}"), UInt8(ascii: "%"): "%" + name
        default: name
        }
    }

    package func jobs(_ lane: Lane) -> String {
        switch lane {
        case .normal: self.own("jobs")
        case .critical, .bulk: self.own("jobs:" + lane.rawValue)
        }
    }

    /// The lane of a jobs stream of any part; nil for any other key.
    package func lane(ofJobs stream: String) -> Lane? {
        let names = self.tagged(self.split(stream).tag)
        return Lane.allCases.first { names.jobs($0) == stream }
    }

    /// Returns the tag that a key's name begins with, and the rest of the name.
    private func split(_ key: String) -> (tag: String?, rest: Substring) {
        let name = key.dropFirst(self.prefix.count)
        guard name.first == "{", let end = name.firstRange(of: "}:") else { return (nil, name) }
        return (String(name[..<end.lowerBound].dropFirst()), name[end.upperBound...])
    }

    /// The overflow of an organisation: jobs moved aside so that others can pass.
    package func overflow(_ org: String) -> String { "\(self.overflows):\(org)" }

    /// Whether a stream of this part is an organisation's overflow.
    func isOverflow(_ stream: String) -> Bool { stream.hasPrefix(self.overflow("")) }

    /// The set of organisations with an overflow.
    package var overflows: String { self.tag == nil ? self.prefix + "jobs:{overflow}" : self.own("overflow") }

    /// The part for the overflow of an organisation's jobs that are in no part; itself in a part.
    package func overflowPart(of org: String) -> Keyspace { self.index == nil ? self.part(of: org) : self }

    /// The start of the names of a provider's keys.
    private func own(_ provider: Provider) -> String {
        self.tag == nil ? "\(self.prefix){\(provider.rawValue)}" : self.own(provider.rawValue)
    }

    package func deliveries(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.own(provider)):deliveries:\(lane.rawValue)"
    }

    func retries(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.own(provider)):retry:\(lane.rawValue)"
    }

    /// The set of apps and services with held-back deliveries.
    func held(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.own(provider)):held:\(lane.rawValue)"
    }

    /// The held-back deliveries of an app or service.
    func held(_ provider: Provider, _ lane: Lane, _ scope: BreakerScope) -> String {
        self.held(provider, lane) + ":" + scope.name
    }

    /// The pauses of a provider's accounts.
    func pauses(_ provider: Provider) -> String { "\(self.prefix){\(provider.rawValue)}:pauses" }

    /// The claims of the stream entries for which deliveries are being sent, in order.
    func sendClaims(_ works: some Sequence<DeliveryWork>, _ provider: Provider) -> [[UInt8]] {
        let start = "\(self.own(provider)):sending:"
        return works.map { work in
            var key: [UInt8] = []
            key.reserveCapacity(start.utf8.count + 96)
            key += start.utf8
            work.notification.append(to: &key)
            key += ":".utf8
            work.device.append(to: &key)
            if work.isRetraction { key += ":x".utf8 }
            return key
        }
    }

    /// The lease of the sweep.
    package var sweepTurn: String { self.prefix + "sweep" }

    /// Exists for a while after a dispatcher could not create the audit's partitions.
    ///
    /// In the slot of ``sweepTurn``, so that a sweep depends on one master of a cluster only.
    package var partsFailure: String { self.prefix + "{\(self.sweepTurn)}:parts-failed" }

    /// The lease of the retention run.
    package var retentionTurn: String { self.prefix + "retention" }

    /// Whether dead letters from this stream can be replayed: into a stream of jobs or deliveries,
    /// or the lane of a scheduled job.
    package func takesBack(_ stream: String) -> Bool {
        stream == Self.schedules || self.lane(ofJobs: stream) != nil || self.kind(ofDeliveries: stream) != nil
    }

    /// The provider and the lane of a stream of deliveries of any part; nil for any other key.
    package func kind(ofDeliveries stream: String) -> (provider: Provider, lane: Lane)? {
        // Compares names, because this process may not know the provider of a dead letter.
        let (ownTag, rest) = self.split(stream)
        let names = [ownTag, String(rest.prefix { $0 != ":" })].compactMap(\.self)
        for provider in names.compactMap({ Provider(rawValue: $0) }) {
            for tag in [nil, ownTag] {
                let keys = self.tagged(tag)
                if let lane = Lane.allCases.first(where: { keys.deliveries(provider, $0) == stream }) {
                    return (provider, lane)
                }
            }
        }
        return nil
    }

    /// The last sweep's note of the run of Redis that it saw; lost if Redis loses its data.
    package var runNote: String { self.own("memory") }

    /// The ``runNote`` on the server that has a stream of this part.
    ///
    /// Streams that are in no part of a spread keyspace may each be on another server.
    package func runNote(of stream: String) -> String {
        self.isSpread && self.tag == nil ? "\(self.prefix)memory:{\(stream)}" : self.runNote
    }

    /// The ``runNote`` keys of all servers that have jobs or deliveries.
    package var runNotes: [String] {
        let others = self.otherSources.flatMap { keys in Lane.allCases.map { keys.runNote(of: keys.jobs($0)) } }
        return self.parts.map(\.runNote) + Set(others).sorted()
    }

    /// The stream of events of this part's users.
    var events: String { self.own("events") }

    /// The name of an event for its readers: the entry's id, or `stream/entry` if several parts may
    /// use the same id.
    func eventName(_ entry: String, in stream: String) -> String {
        self.isSpread ? "\(stream)/\(entry)" : entry
    }

    /// Webhooks by due time.
    var webhooksDue: String { self.prefix + "{webhooks}:due" }

    /// The queued events of a webhook.
    func webhookQueue(_ webhook: WebhookID) -> String { "\(self.prefix){webhooks}:queue:\(webhook)" }

    func presence(_ user: String) -> String {
        self.spread("presence", user) ?? "\(self.prefix)presence:{\(Self.tag(user))}"
    }

    /// The inbox versions that the user's connections have seen.
    func bookmarks(_ user: String) -> String {
        self.spread("bookmarks", user) ?? "\(self.prefix)bookmarks:{\(Self.tag(user))}"
    }

    /// The states and counts that dispatchers publish about their providers.
    var providers: String { "\(self.prefix)providers" }

    /// Requests for test sends.
    var testSends: String { "\(self.prefix)test-sends" }

    func testAnswer(_ id: String) -> String { "\(self.prefix)test-answer:\(id)" }

    /// A user's token bucket for one kind of rate.
    func bucket(_ kind: String, _ user: String) -> String {
        self.spread("rate:\(kind)", user) ?? "\(self.prefix)rate:\(kind):{\(Self.tag(user))}"
    }

    /// A user's count for one cap.
    func usage(_ kind: String, _ user: String) -> String {
        self.spread("used:\(kind)", user) ?? "\(self.prefix)used:{\(Self.tag(user))}:\(kind)"
    }

    package func nodeLease(_ node: String) -> String { "\(self.prefix)node:\(node)" }

    package func dispatcherLease(_ name: String) -> String { "\(self.prefix)dispatcher:\(name)" }

    /// The pub/sub channel of one node for users of this part.
    package func nodeChannel(_ node: String) -> String {
        self.tag == nil ? "\(self.prefix){node:\(node)}" : self.own("node:\(node)")
    }

    /// The command that publishes on the channel of a node.
    package var publishCommand: RedisArgument { self.isSpread ? "SPUBLISH" : "PUBLISH" }

    /// The sorted set of dispatchers by the end of their lease.
    package var dispatchers: String { self.prefix + "dispatchers" }

    /// The sorted set of gateways by the end of their lease.
    package var nodes: String { self.prefix + "nodes" }

    /// The name of a channel for all processes.
    ///
    /// Unlike keys, channels are common to all databases of a Redis.
    private func channel(_ name: String) -> String { self.prefix + name + self.layout.channelSuffix }

    /// The pub/sub channel of all nodes.
    package var allNodesChannel: String { self.channel("all") }

    /// The pub/sub channel for revoked tokens; a message is a revocation's announcement.
    package var revocationsChannel: String { self.channel("revocations") }

    /// The pub/sub channel that makes gateways and dispatchers reload the catalog.
    package var catalogChannel: String { self.channel("catalog") }

    /// A socket ticket, by its hash.
    package func socketTicket(_ hash: String) -> String { "\(self.prefix)ticket:\(hash)" }

    /// The number of sorted sets that share the deadlines of proofs.
    package var proofShards: Int { self.isSpread ? self.tags.count : Self.shardsOfOneRedis }

    package func proofDeadlines(shard: Int) -> String {
        self.isSpread ? "\(self.prefix){\(self.tags[shard])}:unconfirmed" : "\(self.prefix)unconfirmed:{\(shard)}"
    }

    /// The shard of a user's proofs, the same in every process.
    func proofShard(user: String) -> Int { Int(FNV1a.hash32(user) % UInt32(self.proofShards)) }
}
