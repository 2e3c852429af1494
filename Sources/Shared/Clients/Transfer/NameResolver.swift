// Carillon · NameResolver.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Glibc
import NIOCore
import Synchronization

/// Resolves host names on threads of its own and caches the addresses.
///
/// libcurl 7.88 resolves on a thread too, but joins it when the transfer ends. So a host whose name
/// server stays silent would hold up all transfers. NIO has one thread for all lookups of an event
/// loop, and forgets their results when a connection times out.
final class NameResolver: Sendable {
    /// Returns a host's addresses as text, empty if it has none; may block.
    typealias LookUp = @Sendable (_ host: String) -> [String]

    private typealias Waiter = Ticket<String, [String]?>

    /// A host's last addresses, nil if it never had any.
    private struct Entry {
        let addresses: [String]?
        /// When the host is looked up again.
        let expiry: ContinuousClock.Instant
    }

    private struct State {
        var entries: [String: Entry] = [:]
        /// The callers of each running lookup.
        var waiters: [String: [ObjectIdentifier: Waiter]] = [:]
        var isStopped = false
    }

    /// The addresses kept of one host; further ones are ignored.
    private static let maximumAddresses = 32
    /// The most lookups of one domain at a time once half of all lookups are in use.
    private static let maximumOfDomain = 8

    private let state = Mutex(State())
    private let freshness: Duration
    private let failurePause: Duration
    private let maximumLookups: Int
    private let maximumHosts: Int
    private let lookUp: LookUp
    private let now: @Sendable () -> ContinuousClock.Instant

    /// - Parameters:
    ///   - freshness: how long addresses are used without another lookup; by default as in libcurl.
    ///   - failurePause: how long a lookup that failed is not repeated.
    ///   - maximumLookups: the lookups at a time, each with its own thread; beyond it only cached
    ///     addresses serve. From half of it on, each domain may have only a few.
    ///   - maximumHosts: the cached hosts; at this limit the expired ones are dropped, then all.
    init(
        freshness: Duration = .seconds(60),
        failurePause: Duration = .seconds(30),
        maximumLookups: Int = 128,
        maximumHosts: Int = 10_000,
        lookUp: @escaping LookUp,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.freshness = freshness
        self.failurePause = failurePause
        self.maximumLookups = maximumLookups
        self.maximumHosts = maximumHosts
        self.lookUp = lookUp
        self.now = now
    }

    /// Returns a host's addresses; nil if it has none, or none are known within `limit`.
    ///
    /// Callers of the same host share one lookup. The last addresses serve if a later lookup fails,
    /// takes too long or cannot start. Cancelling the task ends the wait.
    func addresses(of host: String, within limit: Duration) async -> [String]? {
        let known = self.state.withLock { $0.entries[host] }
        if let known, self.now() < known.expiry { return known.addresses }
        let waiter = Waiter(host, start: .now, timeout: limit)
        let timer = Task {
            // The time limit of the wait, because getaddrinfo has none.
            try await Task.sleep(for: limit)
            self.end(waiter)
        }
        defer { timer.cancel() }
        return await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                waiter.wait(continuation)
                self.join(waiter)
                // The end may have come before the wait.
                if waiter.isCancelled { self.end(waiter) }
            }
        } onCancel: {
            self.end(waiter)
        }
    }

    /// Ends all waits and starts no more lookups.
    func stop() {
        let waiters = self.state.withLock { state -> [Waiter] in
            state.isStopped = true
            return state.waiters.values.flatMap { $0.values }
        }
        for waiter in waiters { self.end(waiter) }
    }

    /// Adds the caller to its host's lookup, which starts if none runs.
    private func join(_ waiter: Waiter) {
        let host = waiter.request
        let (hasJoined, isFirst) = self.state.withLock { state -> (Bool, Bool) in
            let isFirst = state.waiters[host] == nil
            // A lookup may have ended since the caller looked.
            let isKnown = state.entries[host].map { self.now() < $0.expiry } ?? false
            guard !isKnown, !state.isStopped, !isFirst || self.hasRoom(for: host, among: state.waiters.keys) else {
                return (false, false)
            }
            state.waiters[host, default: [:]][ObjectIdentifier(waiter)] = waiter
            return (true, isFirst)
        }
        guard hasJoined else { return self.end(waiter) }
        guard isFirst else { return }
        let isStarted = DetachedThread.run(name: "resolver") { self.settle(host, self.lookUp(host)) }
        if !isStarted { self.settle(host, []) }
    }

    /// Whether another lookup may run.
    ///
    /// The limit of a domain leaves lookups to other domains if its name server is silent. It only
    /// applies from half of all lookups on, because a push service may have dozens of hosts.
    private func hasRoom(for host: String, among running: some Collection<String>) -> Bool {
        guard running.count >= self.maximumLookups / 2 else { return true }
        let domain = Self.domain(of: host)
        return running.count < self.maximumLookups
            && running.count { Self.domain(of: $0) == domain } < Self.maximumOfDomain
    }

    /// Returns the last two labels of a host name.
    private static func domain(of host: String) -> ArraySlice<Substring> { host.split(separator: ".").suffix(2) }

    /// Ends the caller's wait with the last addresses of its host.
    private func end(_ waiter: Waiter) {
        waiter.cancel()
        let addresses = self.state.withLock { state -> [String]? in
            state.waiters[waiter.request]?[ObjectIdentifier(waiter)] = nil
            return state.entries[waiter.request]?.addresses
        }
        waiter.finish(addresses)
    }

    /// Caches the result of a lookup and answers its callers.
    private func settle(_ host: String, _ found: [String]) {
        let now = self.now()
        let expiry = now.advanced(by: found.isEmpty ? self.failurePause : self.freshness)
        let (waiters, addresses) = self.state.withLock { state -> ([Waiter], [String]?) in
            let known = state.entries[host]
            if known == nil, state.entries.count >= self.maximumHosts {
                state.entries = state.entries.filter { now < $0.value.expiry }
                if state.entries.count >= self.maximumHosts { state.entries.removeAll() }
            }
            let addresses = found.isEmpty ? known?.addresses : Array(found.prefix(Self.maximumAddresses))
            state.entries[host] = Entry(addresses: addresses, expiry: expiry)
            let waiters = state.waiters.removeValue(forKey: host) ?? [:]
            return (Array(waiters.values), addresses)
        }
        for waiter in waiters { waiter.finish(addresses) }
    }
}

extension NameResolver {
    /// Looks a host up with the system's resolver (`getaddrinfo(3)`).
    static func lookUp(_ host: String) -> [String] {
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        var first: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, nil, &hints, &first) == 0 else { return [] }
        defer { freeaddrinfo(first) }
        var addresses: [String] = []
        var next = first
        while let node = next?.pointee {
            if let address = Self.text(node) { addresses.append(address) }
            next = node.ai_next
        }
        return addresses
    }

    /// Returns the address without its zone, which libcurl does not read.
    private static func text(_ node: addrinfo) -> String? {
        var text = [CChar](repeating: 0, count: 128)
        let result = getnameinfo(
            node.ai_addr, node.ai_addrlen, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
        guard result == 0 else { return nil }
        return text.withUnsafeBytes { bytes in
            String(decoding: bytes.prefix { $0 != 0 && $0 != UInt8(ascii: "%") }, as: UTF8.self)
        }
    }
}

/// The host and port of a URL as libcurl reads them, which also decodes and normalises the host.
struct TransferTarget {
    /// In lower case; an IPv6 address in brackets.
    let host: String
    let port: String

    /// Returns nil if libcurl would refuse the URL.
    init?(origin: String) {
        guard let url = curl_url() else { return nil }
        defer { curl_url_cleanup(url) }
        guard curl_url_set(url, CURLUPART_URL, origin, 0) == CURLUE_OK,
            let host = Self.part(CURLUPART_HOST, of: url), let port = Self.part(CURLUPART_PORT, of: url)
        else { return nil }
        self.host = host.lowercased()
        self.port = port
    }

    /// Whether the host is an address, so that nothing has to be looked up.
    var isAddress: Bool { self.host.hasPrefix("[") || (try? SocketAddress(ipAddress: self.host, port: 0)) != nil }

    /// Returns the entry of `CURLOPT_RESOLVE`; the "+" lets it expire from libcurl's cache.
    func resolution(_ addresses: [String]) -> String {
        let list = addresses.map { $0.contains(":") ? "[\($0)]" : $0 }.joined(separator: ",")
        return "+\(self.host):\(self.port):\(list)"
    }

    private static func part(_ part: CURLUPart, of url: OpaquePointer) -> String? {
        var text: UnsafeMutablePointer<CChar>?
        guard curl_url_get(url, part, &text, UInt32(CURLU_DEFAULT_PORT)) == CURLUE_OK, let found = text else {
            return nil
        }
        defer { curl_free(found) }
        return String(cString: found)
    }
}
