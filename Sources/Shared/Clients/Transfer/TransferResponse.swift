// Carillon · TransferResponse.swift
// SPDX-License-Identifier: Apache-2.0

/// What the server answered.
package struct TransferResponse: Sendable, CustomStringConvertible {
    package enum Version: String, Sendable {
        case http1 = "1.1"
        case http2 = "2"
        case other
    }

    package let status: Int
    /// TLS falls back to HTTP/1.1 silently if the server does not offer HTTP/2: APNs callers look here.
    package let version: Version
    package let body: [UInt8]
    /// False if the connection or the stream broke after the status and the headers, or if the body is longer than the
    /// caller allowed: what the server decided is known, the body may be cut.
    package let isComplete: Bool
    /// From the call to the answer, waiting included.
    package let duration: Duration
    /// The header lines as they came, parsed when asked for since most callers want one or none.
    private let headerBlock: [UInt8]

    init(
        status: Int,
        version: Version,
        headerBlock: [UInt8],
        body: [UInt8],
        isComplete: Bool,
        duration: Duration
    ) {
        self.status = status
        self.version = version
        self.headerBlock = headerBlock
        self.body = body
        self.isComplete = isComplete
        self.duration = duration
    }

    /// Without the headers and the body, which may name a device.
    package var description: String {
        "status \(self.status), HTTP/\(self.version.rawValue), \(self.body.count) bytes"
            + (self.isComplete ? "" : ", incomplete")
    }

    /// The fields in the order of the wire, names in lower case.
    package var headers: [(name: String, value: String)] {
        self.lines.compactMap { line in
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return nil }
            let name = String(decoding: line[..<colon].map(\.lowercasedASCII), as: UTF8.self)
            return (name, Self.text(line[(colon + 1)...]))
        }
    }

    /// The first field of this name, whatever the case of either; nil if there is none.
    package func header(_ name: String) -> String? {
        let name = name.utf8
        for line in self.lines where line.count > name.count {
            let colon = line.startIndex + name.count
            guard line[colon] == UInt8(ascii: ":") else { continue }
            let isSame = zip(line[..<colon], name).allSatisfy { $0.lowercasedASCII == $1.lowercasedASCII }
            if isSame { return Self.text(line[(colon + 1)...]) }
        }
        return nil
    }

    /// The status line is the first and no field.
    private var lines: some Sequence<ArraySlice<UInt8>> {
        self.headerBlock.split { $0 == UInt8(ascii: "\r") || $0 == UInt8(ascii: "\n") }.dropFirst()
    }

    private static func text(_ value: ArraySlice<UInt8>) -> String {
        let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        let start = value.firstIndex { !isBlank($0) } ?? value.endIndex
        let end = value.lastIndex { !isBlank($0) }.map { $0 + 1 } ?? start
        return String(decoding: value[start..<end], as: UTF8.self)
    }
}

extension UInt8 {
    /// The same letter in lower case, as far as ASCII goes.
    var lowercasedASCII: UInt8 {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(self) ? self | 0x20 : self
    }
}
