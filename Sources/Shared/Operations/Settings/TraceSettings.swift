// Carillon · TraceSettings.swift
// SPDX-License-Identifier: Apache-2.0

/// The collector that spans go to, by OpenTelemetry's own names.
package struct TraceSettings: Sendable {
    /// The base of its URLs, without a slash at its end.
    package let endpoint: String
    /// Sent along, such as a key; never told.
    package let headers: [(name: String, value: String)]
    /// The name that it knows this program by; nil for the program's own.
    package let service: String?

    /// Reads it; faults stay with the reader.
    ///
    /// Nil if there is no collector.
    init?(_ reader: SettingsReader) {
        let endpoint = reader.value("OTEL_EXPORTER_OTLP_ENDPOINT", default: nil) { text -> String? in
            let isURL =
                (text.hasPrefix("https://") || text.hasPrefix("http://"))
                && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"<>?#@".utf8.contains($0) }
            guard isURL else { throw Complaint("must be a URL such as http://127.0.0.1:4318, without credentials") }
            return text.hasSuffix("/") ? String(text.dropLast()) : text
        }
        self.headers = reader.value("OTEL_EXPORTER_OTLP_HEADERS", default: []) { text in
            try text.split(separator: ",").map { pair in
                let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                let name = parts[0].drop { $0 == " " }
                let isName = name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: ":") }
                guard parts.count == 2, !name.isEmpty, isName, parts[1].utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
                else { throw Complaint("must be name=value, with commas between them") }
                return (name: name.lowercased(), value: String(parts[1]))
            }
        }
        self.service = reader.text("OTEL_SERVICE_NAME")
        guard let endpoint else { return nil }
        self.endpoint = endpoint
    }
}
