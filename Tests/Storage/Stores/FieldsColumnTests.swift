// Carillon · FieldsColumnTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
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

    @Test("reads a dead letter that no job may be like")
    func refused() {
        let marks = "a" + String(repeating: "\u{300}", count: 65)
        let fields: [(name: String, value: [UInt8])] = [("title", Array(marks.utf8)), ("user", Array("ada".utf8))]
        #expect(FieldsColumn.fields(FieldsColumn.json(fields)).map(\.value) == fields.map(\.value))
    }

    @Test("removes an erased user from a list with a name that no job may have")
    func erasure() {
        let marks = "a" + String(repeating: "\u{300}", count: 65)
        func field(_ list: String) -> [JSONValue] { [.array([.string("users"), .string(list)])] }
        let change = FieldsErasure.change(field(#"["ada","\#(marks)"]"#), user: "ada")
        #expect(change == .replace(field(#"["\#(marks)"]"#)))
    }

    @Test("erases and exports a letter with a field name of many combining marks", .timeLimit(.minutes(1)))
    func marks() {
        // Each comparison as `String` would take minutes.
        let name = String(repeating: "\u{300}\u{316}", count: 400_000)
        let fields: [JSONValue] = [
            .array([.string(name), .string("x")]), .array([.string("user"), .string("ada")]),
        ]
        let isRemoved = FieldsErasure.change(fields, user: "ada") == .remove
        #expect(isRemoved)
        let shown = JobExcerpt.of(fields, user: "ada", isOwn: false)
        #expect(shown?.count == 2)
    }

    @Test("recognises an erased user in a job that cannot be parsed, also by an escaped name")
    func job() {
        let fields: [JSONValue] = [.array([.string("job"), .string(#"{"users":["ada","a\"da"],"data":[[["#)])]
        for user in ["ada", #"a"da"#] { #expect(FieldsErasure.change(fields, user: user) == .remove) }
        // Others whose names are part of its text.
        for user in ["bob", "ad", "a"] { #expect(FieldsErasure.change(fields, user: user) == FieldsErasure.none) }
    }

    @Test(
        "recognises the deliveries of an erased user",
        arguments: ["ada", "a user with spaces", "\u{301}ada", "\u{200D}ada", "\u{1F3FD}"])
    func deliveries(user: String) {
        let id = NotificationID(high: 1, low: 2)
        let work = DeliveryWork(notification: id, device: id, user: user, attempt: 0, isRepeat: false)
        let text = String(decoding: work.bytes, as: UTF8.self)
        let fields: [JSONValue] = [.array([.string(DeliveryWork.field), .string(text)])]
        #expect(FieldsErasure.change(fields, user: user) == .remove)
        #expect(FieldsErasure.change(fields, user: "bob") == FieldsErasure.none)
    }
}
