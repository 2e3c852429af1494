// Carillon · Gzip.swift
// SPDX-License-Identifier: Apache-2.0

import CZlib

/// Compression in the format gzip (RFC 1952).
package enum Gzip {
    /// Returns the compressed bytes, as small as zlib makes them; nil if memory is short.
    package static func compress(_ bytes: [UInt8]) -> [UInt8]? {
        var stream = z_stream()
        guard carillon_gzip_init(&stream) == Z_OK else { return nil }
        defer { deflateEnd(&stream) }
        guard let length = UInt32(exactly: bytes.count) else { return nil }
        let bound = Int(deflateBound(&stream, uLong(length)))
        var isDone = false
        var input = bytes
        // zlib reads `input` and writes `output` during the one call alone, within their lengths.
        let output = input.withUnsafeMutableBufferPointer { input in
            [UInt8](unsafeUninitializedCapacity: bound) { output, count in
                stream.next_in = input.baseAddress
                stream.avail_in = length
                stream.next_out = output.baseAddress
                stream.avail_out = UInt32(clamping: output.count)
                isDone = deflate(&stream, Z_FINISH) == Z_STREAM_END
                count = output.count - Int(stream.avail_out)
            }
        }
        return isDone ? output : nil
    }
}
