// Carillon · WebOrigin.swift
// SPDX-License-Identifier: Apache-2.0

/// Where a page comes from: scheme, host and port (RFC 6454 section 6.2).
struct WebOrigin {
    /// As browsers write it, in lower case.
    let text: String

    /// Reads `https://host` or `http://host`, with a port where it is not the scheme's own.
    init(_ text: String) throws(Complaint) {
        let text = text.lowercased()
        let fault = Complaint("must be origins such as https://app.example.com, with commas between them")
        guard let scheme = ["https://", "http://"].first(where: { text.hasPrefix($0) }) else { throw fault }
        let host = text.utf8.dropFirst(scheme.utf8.count)
        guard !host.isEmpty, host.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"/?#@*\\,".utf8.contains($0) }) else {
            throw fault
        }
        self.text = text
    }
}
