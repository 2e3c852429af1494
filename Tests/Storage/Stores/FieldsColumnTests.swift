// Carillon · FieldsColumnTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct FieldsColumnTests {
    @Test("keeps repeated names, and bytes that are not text as Base64")
    func codec() {
        let fields: [(name: String, value: [UInt8])] = [
            ("title", Array("„é“ \"x\"".utf8)), ("title", []), ("data", [0xE9]), ("text", [0x61, 0]),
        ]
        let json = FieldsColumn.json(fields)
        let text = #"[["title","„é“ \"x\""],["title",""],["data",{"base64":"6Q=="}],["text",{"base64":"YQA="}]]"#
        #expect(String(decoding: json, as: UTF8.self) == text)
        let read = FieldsColumn.fields(json)
        #expect(read.map(\.name) == fields.map(\.name))
        #expect(read.map(\.value) == fields.map(\.value))
    }
}
