// Carillon · SignalRHandshake.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The first record of a connection and its answer.
package enum SignalRHandshake: Sendable, Equatable {
    /// The version of the JSON protocol; version 2 has acknowledgements.
    case accepted(version: Int)
    /// The error in the answer.
    case refused(String)

    static let timeoutError = "Handshake was canceled."
    static let unexpectedError = "An unexpected error occurred during connection handshake."
    private static let highestVersion: Int64 = 2

    /// Decides about a request; `record` has no separator.
    ///
    /// Accepts versions 0, 1 and 2 of `json`; signalrcore, for example, sends 0.
    package init(request record: [UInt8]) {
        guard let request = try? JSONParser.parse(record), request.object != nil else {
            self = .refused("\(Self.unexpectedError) The handshake is not a JSON object.")
            return
        }
        guard let name = request["protocol"]?.string else {
            self = .refused("\(Self.unexpectedError) Missing required property 'protocol'.")
            return
        }
        guard let version = request["version"]?.integer else {
            self = .refused("\(Self.unexpectedError) Missing required property 'version'.")
            return
        }
        // Names are compared exactly; an unknown one is echoed, escaped by the JSON writer.
        if ExactText(name) != ExactText("json") {
            self = .refused("The protocol '\(name)' is not supported.")
        } else if version < 0 || version > Self.highestVersion {
            self = .refused("The server does not support version \(version) of the 'json' protocol.")
        } else {
            self = .accepted(version: Int(version))
        }
    }

    /// The answer with its separator.
    var response: [UInt8] {
        switch self {
        case .accepted: Self.success
        case .refused(let error): Self.failure(error)
        }
    }

    private static let success = Array("{}\u{1E}".utf8)

    private static func failure(_ error: String) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("error", error)
        writer.endObject()
        return writer.bytes + [SignalRRecordSplitter.separator]
    }
}
