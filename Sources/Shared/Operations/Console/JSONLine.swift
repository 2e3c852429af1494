// Carillon · JSONLine.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension Terminal {
    /// Prints a JSON object on a line, whose members are what `write` writes.
    package static func object(_ write: (inout JSONWriter) throws -> Void) rethrows {
        var writer = JSONWriter()
        writer.beginObject()
        try write(&writer)
        writer.endObject()
        Terminal.line(String(decoding: writer.bytes, as: UTF8.self))
    }
}
