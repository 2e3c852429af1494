// Carillon · Gzip.swift
// SPDX-License-Identifier: Apache-2.0

import CZlib

/// Compression in the format gzip (RFC 1952).
package enum Gzip {
    /// Returns the compressed bytes, as small as zlib makes them; nil if memory is short.
    package static func compress(_ bytes: [UInt8]) -> [UInt8]? {
        guard let length = UInt32(exactly: bytes.count) else { return nil }
        var input = bytes
        var stream = z_stream()
        // zlib remembers the address of the stream, so all calls are made within one scope.
        return withUnsafeMutablePointer(to: &stream) { stream -> [UInt8]? in
            guard carillon_gzip_init(stream) == Z_OK else { return nil }
            defer { deflateEnd(stream) }
            let bound = Int(deflateBound(stream, uLong(length)))
            var isDone = false
            // zlib reads `input` and writes `output` during the one call alone, within their
            // lengths.
            let output = input.withUnsafeMutableBufferPointer { input in
                [UInt8](unsafeUninitializedCapacity: bound) { output, count in
                    stream.pointee.next_in = input.baseAddress
                    stream.pointee.avail_in = length
                    stream.pointee.next_out = output.baseAddress
                    stream.pointee.avail_out = UInt32(clamping: output.count)
                    isDone = deflate(stream, Z_FINISH) == Z_STREAM_END
                    count = output.count - Int(stream.pointee.avail_out)
                }
            }
            return isDone ? output : nil
        }
    }
}
