// Carillon · NameResolverTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Synchronization
import Testing

@testable import Clients

/// A name server and a clock that the test controls.
final class TestNames: Sendable {
    private struct State {
        var addresses: [String: [String]]
        var held: Set<String> = []
        var lookups: [String] = []
        var now = ContinuousClock.now
    }

    private let state: Mutex<State>
    private let bell: Doorbell

    init(_ addresses: [String: [String]] = [:], held: Set<String> = []) throws {
        self.bell = try #require(Doorbell())
        self.state = Mutex(State(addresses: addresses, held: held))
    }

    /// The hosts looked up so far.
    var lookups: [String] { self.state.withLock { $0.lookups } }

    func set(_ host: String, _ addresses: [String]) {
        self.state.withLock { $0.addresses[host] = addresses }
    }

    func advance(by duration: Duration) {
        self.state.withLock { $0.now = $0.now.advanced(by: duration) }
    }

    /// Lets lookups of the host wait for ``release(_:)``.
    func hold(_ host: String) {
        self.state.withLock { _ = $0.held.insert(host) }
    }

    func release(_ host: String) {
        self.state.withLock { _ = $0.held.remove(host) }
        self.bell.ring()
    }

    func resolver(
        freshness: Duration = .seconds(60),
        failurePause: Duration = .seconds(30),
        maximumLookups: Int = 128,
        maximumHosts: Int = 10_000
    ) -> NameResolver {
        NameResolver(
            freshness: freshness,
            failurePause: failurePause,
            maximumLookups: maximumLookups,
            maximumHosts: maximumHosts,
            lookUp: { self.lookUp($0) },
            now: { self.state.withLock { $0.now } }
        )
    }

    private func lookUp(_ host: String) -> [String] {
        self.state.withLock { $0.lookups.append(host) }
        while self.state.withLock({ $0.held.contains(host) }) { _ = self.bell.wait(milliseconds: 1_000) }
        return self.state.withLock { $0.addresses[host] ?? [] }
    }
}

@Suite("Lookups of host names", .timeLimit(.minutes(10)))
struct NameResolverTests {
    private static let forever: Duration = .seconds(600)
    private static let moment: Duration = .milliseconds(20)

    @Test("callers of one host share a lookup, and each waits within its limit")
    func shared() async throws {
        let names = try TestNames(["a.example": ["192.0.2.1", "2001:db8::1"]], held: ["a.example"])
        let resolver = names.resolver()
        let first = Task { await resolver.addresses(of: "a.example", within: Self.forever) }
        try await eventually("it is looked up") { names.lookups == ["a.example"] }
        #expect(await resolver.addresses(of: "a.example", within: Self.moment) == nil)
        let second = Task { await resolver.addresses(of: "a.example", within: Self.forever) }
        names.release("a.example")
        #expect(await first.value == ["192.0.2.1", "2001:db8::1"])
        #expect(await second.value == ["192.0.2.1", "2001:db8::1"])
        #expect(names.lookups == ["a.example"])
    }

    @Test("addresses serve for a minute")
    func cached() async throws {
        let names = try TestNames(["a.example": ["192.0.2.1"]])
        let resolver = names.resolver()
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.1"])
        names.set("a.example", ["192.0.2.2"])
        names.advance(by: .seconds(59))
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.1"])
        names.advance(by: .seconds(1))
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.2"])
        #expect(names.lookups == ["a.example", "a.example"])
    }

    @Test("the last addresses serve while a later lookup fails or takes too long")
    func fallBack() async throws {
        let names = try TestNames(["a.example": ["192.0.2.1"]])
        let resolver = names.resolver()
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.1"])
        names.set("a.example", [])
        names.hold("a.example")
        names.advance(by: .seconds(60))
        #expect(await resolver.addresses(of: "a.example", within: Self.moment) == ["192.0.2.1"])
        let caller = Task { await resolver.addresses(of: "a.example", within: Self.forever) }
        names.release("a.example")
        #expect(await caller.value == ["192.0.2.1"])
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.1"])
        #expect(names.lookups.count == 2)
        names.set("a.example", ["192.0.2.2"])
        names.advance(by: .seconds(30))
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.2"])
    }

    @Test("a host without an answer is not looked up again for 30 s")
    func failurePause() async throws {
        let names = try TestNames()
        let resolver = names.resolver()
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == nil)
        names.set("a.example", ["192.0.2.1"])
        names.advance(by: .seconds(29))
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == nil)
        #expect(names.lookups == ["a.example"])
        names.advance(by: .seconds(1))
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.1"])
    }

    @Test("beyond the limit on lookups, only the last addresses serve, at once")
    func maximumLookups() async throws {
        let names = try TestNames(["a.example": ["192.0.2.1"], "b.example": ["192.0.2.2"]], held: ["silent.example"])
        let resolver = names.resolver(maximumLookups: 1)
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.1"])
        names.advance(by: .seconds(60))
        let silent = Task { await resolver.addresses(of: "silent.example", within: Self.forever) }
        try await eventually("it is looked up") { names.lookups.last == "silent.example" }
        #expect(await resolver.addresses(of: "a.example", within: Self.forever) == ["192.0.2.1"])
        #expect(await resolver.addresses(of: "b.example", within: Self.forever) == nil)
        names.release("silent.example")
        #expect(await silent.value == nil)
        #expect(await resolver.addresses(of: "b.example", within: Self.forever) == ["192.0.2.2"])
        #expect(names.lookups == ["a.example", "silent.example", "b.example"])
    }

    @Test("hosts of a domain whose name server is silent leave lookups to other domains")
    func silentDomain() async throws {
        let silent = (0..<21).map { "\($0).silent.example" }
        let names = try TestNames(["b.example": ["192.0.2.2"]], held: Set(silent))
        let resolver = names.resolver(maximumLookups: 40)
        let callers = silent.prefix(20).map { host in
            Task { await resolver.addresses(of: host, within: Self.forever) }
        }
        try await eventually("half of all lookups run") { names.lookups.count == 20 }
        #expect(await resolver.addresses(of: silent[20], within: Self.forever) == nil)
        #expect(await resolver.addresses(of: "b.example", within: Self.forever) == ["192.0.2.2"])
        #expect(names.lookups.count == 21 && names.lookups.last == "b.example")
        for host in silent { names.release(host) }
        for caller in callers { #expect(await caller.value == nil) }
    }

    @Test("at the limit on hosts, expired ones are forgotten, then all")
    func maximumHosts() async throws {
        let names = try TestNames()
        for host in ["a", "b", "c", "d"] { names.set(host, ["192.0.2.1"]) }
        let resolver = names.resolver(maximumHosts: 2)
        #expect(await resolver.addresses(of: "a", within: Self.forever) != nil)
        names.advance(by: .seconds(60))
        for host in ["b", "c", "b", "d", "b"] {
            #expect(await resolver.addresses(of: host, within: Self.forever) != nil)
        }
        // "c" takes the place of "a", which has expired; "d" takes the place of all.
        #expect(names.lookups == ["a", "b", "c", "d", "b"])
    }

    @Test("a cancelled caller ends, also if it was cancelled beforehand, and others wait on")
    func cancelled() async throws {
        let names = try TestNames(["a.example": ["192.0.2.1"]], held: ["a.example"])
        let resolver = names.resolver()
        let other = Task { await resolver.addresses(of: "a.example", within: Self.forever) }
        let caller = Task { await resolver.addresses(of: "a.example", within: Self.forever) }
        try await eventually("it is looked up") { names.lookups == ["a.example"] }
        caller.cancel()
        #expect(await caller.value == nil)
        let late = Task {
            while !Task.isCancelled { await Task.yield() }
            return await resolver.addresses(of: "a.example", within: Self.forever)
        }
        late.cancel()
        #expect(await late.value == nil)
        names.release("a.example")
        #expect(await other.value == ["192.0.2.1"])
    }

    @Test("stopping ends all waits")
    func stopped() async throws {
        let names = try TestNames(held: ["a.example"])
        let resolver = names.resolver()
        let caller = Task { await resolver.addresses(of: "a.example", within: Self.forever) }
        try await eventually("it is looked up") { names.lookups == ["a.example"] }
        resolver.stop()
        #expect(await caller.value == nil)
        #expect(await resolver.addresses(of: "b.example", within: Self.forever) == nil)
        names.release("a.example")
        #expect(names.lookups == ["a.example"])
    }

    @Test("the system's resolver returns addresses as text")
    func system() {
        #expect(!Set(NameResolver.lookUp("localhost")).isDisjoint(with: ["127.0.0.1", "::1"]))
        #expect(NameResolver.lookUp("192.0.2.1") == ["192.0.2.1"])
        #expect(NameResolver.lookUp("fe80::1%lo") == ["fe80::1"])
    }

    @Test(
        "a host and port are read as libcurl reads them",
        arguments: [
            ("https://Name.Example", "+name.example:443:192.0.2.1,[2001:db8::1]"),
            ("https://name.example.:8443", "+name.example.:8443:192.0.2.1,[2001:db8::1]"),
            ("https://user:word@n%61me.example", "+name.example:443:192.0.2.1,[2001:db8::1]"),
        ])
    func target(origin: String, entry: String) throws {
        let target = try #require(TransferTarget(origin: origin))
        #expect(!target.isAddress)
        #expect(target.resolution(["192.0.2.1", "2001:db8::1"]) == entry)
    }

    @Test("an address needs no lookup", arguments: ["192.0.2.1", "192.0.513", "0xC0000201", "[2001:db8::1]:8443"])
    func address(host: String) throws {
        let target = try #require(TransferTarget(origin: "https://" + host))
        #expect(target.isAddress)
    }

    @Test("an origin that libcurl refuses has no target", arguments: ["https://*", "https://a:b", "nonsense://a"])
    func refused(origin: String) {
        #expect(TransferTarget(origin: origin)?.host == nil)
    }
}
