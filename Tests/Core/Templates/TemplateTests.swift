// Carillon · TemplateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Template texts", .timeLimit(.minutes(10)))
struct TemplateTests {
    private static func render(_ source: String, _ vars: String, _ form: TemplateText.Form = .text) throws -> String {
        try TemplateText(source, form).render(TemplateVariables(json: Array(vars.utf8)))
    }

    @Test(
        "fills in variables",
        arguments: [
            ("plain", "{}", "plain"),
            ("", "{}", ""),
            ("{{a}}, {{ b }}!", #"{"a":"x","b":12.50}"#, "x, 12.50!"),
            ("{{a}} & <b>", #"{"a":"<\"&'>"}"#, "<\"&'> & <b>"),
            ("{{ok}}", #"{"ok":true}"#, "true"),
            ("{{invoice.number}}", #"{"invoice":{"number":"i9"}}"#, "i9"),
            ("paused{{#reason}}: {{reason}}{{/reason}}", #"{"reason":"too late"}"#, "paused: too late"),
            ("paused{{#reason}}: {{reason}}{{/reason}}", "{}", "paused"),
            ("paused{{#reason}}: {{reason}}{{/reason}}", #"{"reason":null}"#, "paused"),
            ("paused{{#reason}}: {{reason}}{{/reason}}", #"{"reason":""}"#, "paused"),
            ("{{^items}}none{{/items}}{{#items}}{{.}},{{/items}}", #"{"items":[]}"#, "none"),
            ("{{^items}}none{{/items}}{{#items}}{{.}},{{/items}}", #"{"items":["a",2]}"#, "a,2,"),
            ("{{#items}}{{n}}{{unit}} {{/items}}", #"{"unit":"m","items":[{"n":1},{"n":2,"unit":"s"}]}"#, "1m 2s "),
            ("{{#on}}yes{{/on}}{{^on}}no{{/on}}", #"{"on":false}"#, "no"),
            ("{{#a.b}}x{{/a.b}}{{^a.b}}y{{/a.b}}", "{}", "y"),
            ("{{! a note }}{{uppercased(a)}} {{count(l)}}", #"{"a":"x","l":[1,2]}"#, "X 2"),
            ("one\ntwo {{a}}", #"{"a":"x"}"#, "one\ntwo x"),
            ("{{#l}}\n- {{.}}\n{{/l}}\nend", #"{"l":[1,2]}"#, "- 1\n- 2\nend"),
            ("\n {{a}}", #"{"a":"x"}"#, "\n x"),
        ]
    )
    func fills(source: String, vars: String, expected: String) throws {
        #expect(try Self.render(source, vars) == expected)
    }

    @Test("variables are escaped in HTML and unchanged in text")
    func escapes() throws {
        let vars = #"{"a":"<b>&\"","l":["<"]}"#
        #expect(try Self.render("<p>{{a}}{{#l}}{{.}}{{/l}}</p>", vars, .html) == "<p>&lt;b&gt;&amp;&quot;&lt;</p>")
        #expect(try Self.render("<p>{{{a}}}</p>", vars, .html) == "<p><b>&\"</p>")
        #expect(try Self.render("<p>{{a}}{{#l}}{{.}}{{/l}}</p>", vars, .text) == "<p><b>&\"<</p>")
    }

    @Test(
        "a missing or unsuitable variable is named with its path",
        arguments: [
            ("{{amount}}", "{}", "amount", "is missing"),
            ("{{amount}}", #"{"amount":null}"#, "amount", "is missing"),
            ("{{uppercased(amount)}}", "{}", "amount", "is missing"),
            ("{{a.b}}", "{}", "a.b", "is missing"),
            ("{{a.b.c}}", #"{"a":{"b":{}}}"#, "a.b.c", "is missing"),
            ("{{a}}{{b}}", #"{"a":1}"#, "b", "is missing"),
            ("{{#items}}{{n}}{{/items}}", #"{"items":[{"n":1},{}]}"#, "n", "is missing"),
            ("{{^ready}}{{why}}{{/ready}}", "{}", "why", "is missing"),
            ("{{a}}", #"{"a":{}}"#, "a", "is an object; give text or a number"),
            ("{{a}}", #"{"a":[1]}"#, "a", "is a list; give text or a number"),
        ]
    )
    func missing(source: String, vars: String, name: String, reason: String) throws {
        let text = try TemplateText(source, .text)
        let error = #expect(throws: TemplateVariableFault.self) {
            try text.render(TemplateVariables(json: Array(vars.utf8)))
        }
        #expect(error?.name == name)
        #expect(error?.reason == reason)
    }

    @Test("a list may have a hundred elements")
    func longLists() throws {
        let text = try TemplateText("{{#l}}{{.}}{{/l}}", .text)
        func variables(_ count: Int) -> TemplateVariables {
            TemplateVariables([JSONMember("l", .array(Array(repeating: .number("1"), count: count)))])
        }
        #expect(try text.render(variables(100)).count == 100)
        let error = #expect(throws: TemplateVariableFault.self) { try text.render(variables(101)) }
        #expect(error?.reason == "has more than 100 elements")
    }

    @Test(
        "refuses malformed templates with their line",
        arguments: [
            ("{{", 1, "a tag is not closed"), ("a\n{{b", 2, "a tag is not closed"), ("{{{a}}", 1, nil),
            ("{{}}", 1, "a tag has no name"), ("{{#}}", 1, "a tag has no name"), ("{{ a b }}", 1, nil),
            ("{{#a}}", 1, "a section is not closed"), ("{{#a}}{{/b}}", 1, "a section is closed with another name"),
            ("{{/a}}", 1, nil), ("{{a{{b}}", 1, nil), ("x\n{{> file}}", 2, "partials and blocks are not supported"),
            ("{{<f}}{{/f}}", 1, "partials and blocks are not supported"),
            ("{{$f}}{{/f}}", 1, "partials and blocks are not supported"),
            ("{{=<% %>=}}", 1, "delimiters must be {{ and }}"),
            ("{{% CONTENT_TYPE:TEXT}}", 1, "pragmas are not supported"),
        ] as [(String, Int, String?)]
    )
    func syntax(source: String, line: Int, reason: String?) {
        let error = #expect(throws: TemplateSyntaxFault.self) { try TemplateText(source, .text) }
        #expect(error?.line == line)
        if let reason { #expect(error?.reason == reason) }
    }

    @Test("random tags and braces are refused at worst")
    func garbage() {
        let pieces = ["{{", "}}", "{", "}", "\n", "\u{0}", "\r\n", "é"] + "#/^&!a.() ".map { String($0) }
        var state: UInt64 = 42
        for _ in 0..<20_000 {
            var source = ""
            for _ in 0..<8 {
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                source += pieces[Int(state >> 33) % pieces.count]
            }
            _ = try? Self.render(source, #"{"a":["x",{"a":1}]}"#)
        }
    }
}
