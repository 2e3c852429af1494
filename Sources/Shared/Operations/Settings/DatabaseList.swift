// Carillon · DatabaseList.swift
// SPDX-License-Identifier: Apache-2.0

/// Several PostgreSQL URLs in one variable, with commas or spaces between them.
struct DatabaseList {
    let urls: [String]

    /// - Throws: ``Complaint``, which holds nothing of the text, as that may be a password.
    init(_ text: String) throws(Complaint) {
        var urls: [String] = []
        for word in text.split(whereSeparator: \.isWhitespace) {
            var isFirst = true
            for part in word.split(separator: ",") {
                if ["postgresql://", "postgres://"].contains(where: { part.hasPrefix($0) }) {
                    urls.append(String(part))
                } else if isFirst {
                    throw Complaint("must be URLs such as postgresql://user@host/database, with commas between them")
                } else {
                    // A URL may name several hosts, with commas as well.
                    urls[urls.count - 1] += "," + part
                }
                isFirst = false
            }
        }
        self.urls = urls
    }
}
