// Carillon · TransferScope.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import Glibc
import Sandbox
import Support
import Testing

@testable import Clients

/// Runs a suite with one shared sandbox; each test has its own client and device tokens.
struct TransferScope: SuiteTrait, TestScoping {
    @TaskLocal static var sandbox: ProviderSandbox?
    /// Shared by all pushes: like Apple, the sandbox rejects a connection with many tokens.
    @TaskLocal static var providerToken = ""

    @concurrent
    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await ProviderSandbox.with { sandbox in
            try await Self.$sandbox.withValue(sandbox) {
                try await Self.$providerToken.withValue(sandbox.makeProviderToken()) { try await function() }
            }
        }
    }

    /// Runs the body with a client that trusts the sandbox and waits long for connections.
    static func withClient<Result>(
        _ change: (inout TransferConfiguration) -> Void = { _ in },
        _ body: (TransferClient, ProviderSandbox) async throws -> Result
    ) async throws -> Result {
        let sandbox = try #require(Self.sandbox)
        var configuration = TransferConfiguration()
        configuration.caFile = sandbox.caPath
        configuration.connectTimeout = .seconds(600)
        change(&configuration)
        let client = try TransferClient(configuration: configuration)
        return try await withCleanUp({ await client.shutdown() }) { try await body(client, sandbox) }
    }
}

extension Trait where Self == TransferScope {
    /// One sandbox for the suite.
    static var transfer: TransferScope { TransferScope() }
}

extension ProviderSandbox {
    /// Returns a valid push to a device whose token begins with `marker`, which selects a fault.
    func push(
        _ marker: String = "0",
        timeout: Duration = .seconds(600),
        host: String = "127.0.0.1",
        priority: TransferPriority = .normal,
        mayStart: (@Sendable () -> Bool)? = nil
    ) -> TransferRequest {
        let random = (0..<4).map { _ in String(UInt64.random(in: .min ... .max) | 1 << 63, radix: 16) }.joined()
        let device = marker + random.dropFirst(marker.count)
        return TransferRequest(
            .post,
            url: "\(self.url.replacing("127.0.0.1", with: host))/3/device/\(device)",
            headers: [
                (name: "authorization", value: "bearer \(TransferScope.providerToken)"),
                (name: "apns-topic", value: "org.example.app"),
            ],
            body: Array(#"{"aps":{"alert":"hi"}}"#.utf8),
            timeout: timeout,
            priority: priority,
            mayStart: mayStart
        )
    }

    fileprivate func makeProviderToken() throws -> String {
        let now = Int(Date().timeIntervalSince1970)
        let unsigned = [
            #"{"alg":"ES256","kid":"\#(self.apnsKeyID)"}"#, #"{"iss":"\#(self.apnsTeamID)","iat":\#(now)}"#,
        ].map { Base64.url.encode($0.utf8) }.joined(separator: ".")
        let key = try P256.Signing.PrivateKey(
            pemRepresentation: String(contentsOfFile: self.apnsKeyPath, encoding: .utf8))
        let signature = try key.signature(for: SHA256.hash(data: Data(unsigned.utf8)))
        return unsigned + "." + Base64.url.encode(signature.rawRepresentation)
    }
}

extension TransferOutcome {
    var response: TransferResponse? {
        if case .answered(let response) = self { response } else { nil }
    }

    var failure: TransferFailure? {
        if case .unanswered(let failure) = self { failure } else { nil }
    }
}

/// The sockets of this process.
enum OwnSockets {
    /// Returns how long each connection to a port of 127.0.0.1 waits for acknowledgements, in
    /// milliseconds.
    static func acknowledgementLimits(toPort port: Int) throws -> [CUnsignedInt] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap { name in
            guard let descriptor = CInt(name), self.peerPort(of: descriptor) == port else { return nil }
            var limit: CUnsignedInt = 0
            var length = socklen_t(MemoryLayout<CUnsignedInt>.size)
            let result = getsockopt(descriptor, CInt(IPPROTO_TCP), TCP_USER_TIMEOUT, &limit, &length)
            return result == 0 ? limit : nil
        }
    }

    /// Returns the port that an IPv4 socket is connected to; nil for other files.
    private static func peerPort(of descriptor: CInt) -> Int? {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        // `getpeername` writes the address only during the call.
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getpeername(descriptor, $0, &length) }
        }
        guard result == 0, address.sin_family == sa_family_t(AF_INET) else { return nil }
        return Int(in_port_t(bigEndian: address.sin_port))
    }
}

extension TransferClient {
    /// Waits until the client's snapshot matches.
    func wait(
        file: StaticString = #fileID,
        line: UInt = #line,
        until isReached: (TransferSnapshot) -> Bool
    ) async throws {
        try await eventually("the snapshot matches", file: file, line: line) { isReached(self.snapshot()) }
    }
}
