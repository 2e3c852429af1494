// Carillon · APNSEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import NIOCore

/// APNs' `POST /3/device/<token>`.
struct APNSEndpoint: Sendable {
    private static let path = "/3/device/"

    private let verifier: ProviderTokenVerifier
    private let faults: FaultTable
    private let log: ReceivedLog
    private let configuration: SandboxConfiguration

    init(
        _ provider: SandboxCredentials.Provider, faults: FaultTable, log: ReceivedLog,
        _ configuration: SandboxConfiguration
    ) {
        self.verifier = ProviderTokenVerifier(provider)
        self.faults = faults
        self.log = log
        self.configuration = configuration
    }

    static func isHexDigit(_ byte: UInt8) -> Bool {
        byte >= 0x30 && byte <= 0x39 || (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66
    }

    func answer(_ request: SandboxRequest, on connection: inout SandboxConnection) -> SandboxAnswer {
        guard request.transport == .http2 else { return .respond(.plain(505, "APNs speaks HTTP/2 only.")) }
        let now = self.configuration.clock()
        let headers = APNSHeaders(request.headers)
        do throws(APNSRefusal) {
            let token = try self.check(request, headers, on: &connection, at: now)
            let fault = self.faults.fault(forAPNS: token)
            if case .apns(let refusal) = fault {
                // The client may answer with a new token at once, as it may when its token has really expired.
                if refusal.reason == .expiredProviderToken { connection.providerToken = nil }
                throw refusal
            }
            if case .cut = fault { self.log.cut(.apns, token: token, request: request, at: now) }
            let answer = fault?.answer(to: request, slowDelay: self.configuration.slowDelay) {
                self.accept(token, request, headers, at: now)
            }
            return answer ?? .respond(self.accept(token, request, headers, at: now))
        } catch {
            self.log.refuse(.apns, name: error.reason.rawValue)
            var fields = [Self.identifier(headers)]
            if error.reason.status == 503 { fields.append(("retry-after", String(self.configuration.retryAfter))) }
            return .respond(
                SandboxResponse(
                    status: error.reason.status, headers: fields, body: ByteBuffer(string: error.body(at: now))))
        }
    }

    /// Every rule in APNs' order: the request line, the credential, the headers, the payload, the device.
    private func check(
        _ request: SandboxRequest, _ headers: APNSHeaders, on connection: inout SandboxConnection, at now: Date
    ) throws(APNSRefusal) -> String {
        guard request.path.hasPrefix(Self.path) else { throw APNSRefusal(.badPath) }
        guard request.method == "POST" else { throw APNSRefusal(.methodNotAllowed) }
        try self.verifier.check(headers.authorization, on: &connection, at: now)
        let type = try headers.check()
        guard !request.body.isEmpty else { throw APNSRefusal(.payloadEmpty) }
        guard request.body.count <= type.payloadLimit else { throw APNSRefusal(.payloadTooLarge) }
        try Self.checkPayload(request.body, type)
        let token = String(request.path.utf8.dropFirst(Self.path.utf8.count)) ?? ""
        guard !token.isEmpty else { throw APNSRefusal(.missingDeviceToken) }
        guard token.utf8.count >= 64, token.utf8.count <= 200, token.utf8.count % 2 == 0,
            token.utf8.allSatisfy(Self.isHexDigit)
        else { throw APNSRefusal(.badDeviceToken) }
        return token
    }

    private static func checkPayload(_ body: [UInt8], _ type: APNSPushType) throws(APNSRefusal) {
        guard let payload = try? JSONReader.parse(body) else { throw APNSRefusal(.payloadEmpty) }
        if type == .mdm, payload.member("mdm")?.text != nil { return }
        guard let aps = payload.member("aps"), aps.members != nil else { throw APNSRefusal(.payloadEmpty) }
        guard type == .background else { return }
        let isSilent = ["alert", "sound", "badge"].allSatisfy { aps.member($0) == nil }
        guard isSilent, aps.member("content-available")?.double == 1 else { throw APNSRefusal(.invalidPushType) }
    }

    private func accept(
        _ token: String, _ request: SandboxRequest, _ headers: APNSHeaders, at now: Date
    ) -> SandboxResponse {
        self.log.accept(.apns, token: token, request: request, at: now)
        return SandboxResponse(
            status: 200, headers: [Self.identifier(headers), ("apns-unique-id", UUID().uuidString)])
    }

    /// The request's own id, or a new one.
    private static func identifier(_ headers: APNSHeaders) -> (String, String) {
        ("apns-id", headers.identifier ?? UUID().uuidString)
    }
}
