// Carillon · SignalREventStream.swift
// SPDX-License-Identifier: Apache-2.0

/// A connection's records as Server-Sent Events; what the client says comes by POST.
package enum SignalREventStream {
    package static let contentType = EventStreamEncoder.contentType

    /// Written at once: some browsers report a stream as open only when it has brought something.
    package static let opening = EventStreamEncoder.comment(lineEnd: .carriageReturnLineFeed)

    /// One event of the bytes of a ``SignalRAction/write(_:)``.
    package static func event(_ records: [UInt8]) -> [UInt8] {
        EventStreamEncoder.event(data: records, lineEnd: .carriageReturnLineFeed)
    }
}
