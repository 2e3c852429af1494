// Carillon · APNSEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOCore
import NIOHPACK

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
                // Forget the token, so that the client may send a new one at once, as after a real
                // expiry.
                if refusal.reason == .expiredProviderToken { connection.providerToken = nil }
                throw refusal
            }
            if case .cut = fault { self.log.cut(.apns, token: token, request: request, at: now) }
            let answer = fault?.answer(to: request, slowPause: self.configuration.slowPause) {
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

    /// Checks in APNs' order: path and method, credential, headers, payload, device token.
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
        guard let payload = try? JSONParser.parse(body) else { throw APNSRefusal(.payloadEmpty) }
        if type == .mdm, payload.member("mdm")?.string != nil { return }
        guard let aps = payload.member("aps"), aps.object != nil else { throw APNSRefusal(.payloadEmpty) }
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

    /// Returns the `apns-id` of the request, or a new one.
    private static func identifier(_ headers: APNSHeaders) -> (String, String) {
        ("apns-id", headers.identifier ?? UUID().uuidString)
    }
}

/// The request headers that APNs reads, collected in one pass, and the rules for their values.
struct APNSHeaders {
    private(set) var authorization: String?
    private(set) var identifier: String?
    private var topic: String?
    private var pushType: String?
    private var priority: String?
    private var expiration: String?
    private var collapseIdentifier: String?
    private var hasDuplicates = false

    init(_ headers: HPACKHeaders) {
        for (name, value, _) in headers {
            switch name {
            case "authorization": self.set(\.authorization, value)
            case "apns-id": self.set(\.identifier, value)
            case "apns-topic": self.set(\.topic, value)
            case "apns-push-type": self.set(\.pushType, value)
            case "apns-priority": self.set(\.priority, value)
            case "apns-expiration": self.set(\.expiration, value)
            case "apns-collapse-id": self.set(\.collapseIdentifier, value)
            default: break
            }
        }
    }

    private mutating func set(_ field: WritableKeyPath<APNSHeaders, String?>, _ value: String) {
        if self[keyPath: field] != nil { self.hasDuplicates = true }
        self[keyPath: field] = value
    }

    /// Checks every value and returns the push type; the default is an alert.
    func check() throws(APNSRefusal) -> APNSPushType {
        if self.hasDuplicates { throw APNSRefusal(.duplicateHeaders) }
        if let identifier, !Self.isUUID(identifier) { throw APNSRefusal(.badMessageID) }
        // The value is in seconds; milliseconds do not fit into 32 bits.
        if let expiration, UInt32(expiration) == nil { throw APNSRefusal(.badExpirationDate) }
        if let collapseIdentifier, collapseIdentifier.utf8.count > 64 { throw APNSRefusal(.badCollapseID) }
        let type = self.pushType.map(APNSPushType.init(rawValue:)) ?? .alert
        guard let type else { throw APNSRefusal(.invalidPushType) }
        switch self.priority {
        case nil, "5": break
        case "1", "10":
            if type == .background { throw APNSRefusal(.badPriority) }
        default: throw APNSRefusal(.badPriority)
        }
        try self.checkTopic(type)
        return type
    }

    private func checkTopic(_ type: APNSPushType) throws(APNSRefusal) {
        guard let topic else { throw APNSRefusal(.missingTopic) }
        let isName = topic.utf8.allSatisfy { byte in
            (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7A || byte >= 0x30 && byte <= 0x39 || byte == 0x2D
                || byte == 0x2E
        }
        guard isName, !topic.isEmpty, topic.utf8.count <= 255 else { throw APNSRefusal(.badTopic) }
        if let suffix = type.topicSuffix, !topic.hasSuffix(suffix) { throw APNSRefusal(.topicDisallowed) }
    }

    private static func isUUID(_ text: String) -> Bool {
        guard text.utf8.count == 36 else { return false }
        for (index, byte) in text.utf8.enumerated() {
            switch index {
            case 8, 13, 18, 23:
                guard byte == UInt8(ascii: "-") else { return false }
            default:
                guard APNSEndpoint.isHexDigit(byte) else { return false }
            }
        }
        return true
    }
}

/// The values of `apns-push-type`.
enum APNSPushType: String {
    case alert, background, location, voip, complication, fileprovider, mdm, liveactivity, pushtotalk, widgets, controls

    /// The required suffix of the topic; `nil` if the topic is the plain bundle id.
    var topicSuffix: String? {
        switch self {
        case .alert, .background, .mdm, .controls: nil
        case .location: ".location-query"
        case .voip: ".voip"
        case .complication: ".complication"
        case .fileprovider: ".pushkit.fileprovider"
        case .liveactivity: ".push-type.liveactivity"
        case .pushtotalk: ".voip-ptt"
        case .widgets: ".push-type.widgets"
        }
    }

    /// The largest payload, in bytes.
    var payloadLimit: Int { self == .voip ? 5120 : 4096 }
}
