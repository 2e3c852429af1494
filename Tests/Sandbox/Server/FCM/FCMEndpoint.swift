// Carillon · FCMEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOCore
import NIOHPACK

/// FCM's `POST /v1/projects/{project}/messages:send`.
struct FCMEndpoint: Sendable {
    private let tokens: AccessTokens
    private let faults: FaultTable
    private let log: ReceivedLog
    private let configuration: SandboxConfiguration

    init(
        tokens: AccessTokens, faults: FaultTable, log: ReceivedLog, _ configuration: SandboxConfiguration
    ) {
        self.tokens = tokens
        self.faults = faults
        self.log = log
        self.configuration = configuration
    }

    func answer(_ request: SandboxRequest) -> SandboxAnswer {
        guard request.method == "POST", request.path.hasSuffix("/messages:send") else {
            return .respond(.plain(404, "The requested URL was not found on this server."))
        }
        let now = self.configuration.clock()
        do throws(FCMRefusal) {
            let project = try self.authorize(request, at: now)
            let message = try self.read(request)
            let fault = self.faults.fault(forFCM: message.target)
            if case .fcm(let refusal) = fault { throw refusal }
            if case .cut = fault {
                self.log.cut(.fcm, project: project, token: message.target, request: request, at: now)
            }
            let answer = fault?.answer(to: request, slowPause: self.configuration.slowPause) {
                self.accept(message, request, project, at: now)
            }
            return answer ?? .respond(self.accept(message, request, project, at: now))
        } catch {
            return .respond(self.refuse(error))
        }
    }

    /// Returns the project of the access token, which must match the path.
    private func authorize(_ request: SandboxRequest, at now: Date) throws(FCMRefusal) -> String {
        guard let authorization = request.headers.first(name: "authorization") else { throw .missingCredential }
        guard let project = self.tokens.project(of: authorization, at: now) else { throw .unauthenticated }
        guard request.path == "/v1/projects/\(project)/messages:send" else { throw .permissionDenied }
        return project
    }

    private func read(_ request: SandboxRequest) throws(FCMRefusal) -> FCMMessage {
        guard !request.isTruncated else {
            throw .unreadable("Request payload size exceeds the limit.", field: nil)
        }
        if let type = request.headers.first(name: "content-type"), !type.lowercased().hasPrefix("application/json") {
            throw .unreadable("Invalid JSON payload received. Unexpected content type.", field: nil)
        }
        let body: JSONValue
        do {
            body = try JSONParser.parse(request.body)
        } catch {
            throw .unreadable("Invalid JSON payload received. Unexpected token at byte \(error.offset).", field: nil)
        }
        return try FCMMessage(body)
    }

    private func accept(
        _ message: FCMMessage, _ request: SandboxRequest, _ project: String, at now: Date
    ) -> SandboxResponse {
        if message.isDryRun { return Self.success("projects/\(project)/messages/fake_message_id") }
        self.log.accept(.fcm, project: project, token: message.target, request: request, at: now)
        let random = UInt64.random(in: .min ... .max)
        if message.isBroadcast {
            return Self.success("projects/\(project)/messages/\(random >> 1)")
        }
        let micros = Int(now.timeIntervalSince1970 * 1_000_000)
        let digits = String(random, radix: 16)
        let padding = String(repeating: "0", count: 16 - digits.utf8.count)
        return Self.success("projects/\(project)/messages/0:\(micros)%\(padding)\(digits)")
    }

    private func refuse(_ refusal: FCMRefusal) -> SandboxResponse {
        self.log.refuse(.fcm, name: refusal.name)
        var headers: [(String, String)] = []
        if refusal.isTemporary { headers.append(("retry-after", String(self.configuration.retryAfter))) }
        if refusal.httpStatus == 401, refusal.errorCode == nil {
            headers.append(("www-authenticate", #"Bearer realm="https://accounts.google.com/", error="invalid_token""#))
        }
        return .json(refusal.httpStatus, headers: headers) { refusal.write(to: &$0) }
    }

    private static func success(_ name: String) -> SandboxResponse {
        .json(200, "{\n  \"name\": \"\(name)\"\n}\n")
    }
}
