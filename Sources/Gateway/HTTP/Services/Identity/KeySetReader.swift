// Carillon · KeySetReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import FoundationEssentials

/// Reads a JWKS document from where it lies, bounded in size and time.
package enum KeySetReader {
    private static let longest = 256 * 1024
    private static let deadline: Duration = .seconds(5)

    /// Reads a file.
    package static func file(_ path: String) throws(KeySetFault) -> [UInt8] {
        guard let bytes = FileManager.default.contents(atPath: path) else { throw KeySetFault("cannot be read") }
        guard bytes.count <= Self.longest else { throw KeySetFault("exceeds \(Self.longest) bytes") }
        return Array(bytes)
    }

    /// Fetches a URL; the answer must be a 200, whole, of at most 256 KB, within 5 s, and no redirect is followed.
    package static func url(_ url: String, client: TransferClient) async throws(KeySetFault) -> [UInt8] {
        let request = TransferRequest(
            .get,
            url: url,
            headers: [("accept", "application/json")],
            timeout: Self.deadline,
            maximumResponseBytes: Self.longest
        )
        switch await client.perform(request) {
        case .unanswered(let failure): throw KeySetFault("\(failure)")
        case .answered(let response):
            guard response.status == 200 else { throw KeySetFault("the server answered \(response.status)") }
            guard response.isComplete else { throw KeySetFault("the answer was cut") }
            return response.body
        }
    }
}
