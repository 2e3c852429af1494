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
            ("{{a.b}}{{#n}}: {{b}} {{n}}{{/n}}", #"{"a":{"b":"x"},"b":"y","n":"z"}"#, "x: y z"),
            ("{{a.u}}{{#l}} {{n}}{{u}}{{/l}}", #"{"a":{"u":"kg"},"u":"m","l":[{"n":1},{"n":2,"u":"s"}]}"#, "kg 1m 2s"),
            ("{{#l}}{{.n}}{{^.u}}-{{/.u}}{{/l}}", #"{"u":"m","l":[{"n":1}]}"#, "1-"),
            ("{{ a.b }} {{uppercased(a.b)}} {{{a.b}}}{{#a.b}}.{{/a.b}}", #"{"a":{"b":"x"}}"#, "x X x."),
            ("{{first(l)}}{{uppercased(last(l))}} {{reversed(a)}}", #"{"l":["a","b"],"a":"xy"}"#, "aB yx"),
            ("{{#reversed(l)}}{{n}}{{/reversed(l)}} {{count(reversed(l))}}", #"{"l":[{"n":1},{"n":2}]}"#, "21 2"),
            ("{{#first(l)}}x{{/first(l)}}{{#empty(l)}}none{{/empty(l)}}", #"{"l":[]}"#, "none"),
            ("{{#l}}{{plusone(index())}}{{.}}{{^last()}}, {{/last()}}{{/l}}", #"{"l":["a","b"]}"#, "1a, 2b"),
            ("{{#even(count(l))}}even{{/even(count(l))}}", #"{"l":[1,2]}"#, "even"),
            ("{{#l}}{{#empty(n)}}{{index()}}{{.t}}{{/empty(n)}}{{/l}}", #"{"l":[{"n":"x"},{"n":"","t":"a"}]}"#, "1a"),
            ("{{empty(a)}}{{^empty(a)}} x{{/empty(a)}}", #"{"a":"x"}"#, "false x"),
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
        // The scalars before `<` and after the quotation mark make other characters of them.
        let joined = #"{"a":"\u0600<b \"\u0301>"}"#
        #expect(try Self.render("{{a}}", joined, .html) == "\u{600}&lt;b &quot;\u{301}&gt;")
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
            ("{{reversed(a)}}", #"{"a":[1]}"#, "reversed(a)", "is a list; give text or a number"),
            ("{{#l}}{{.n}}{{/l}}", #"{"n":1,"l":[{}]}"#, "l.n", "is missing"),
            ("{{first(a)}}", #"{"a":[]}"#, "first(a)", "is missing"),
            ("{{count(a)}}", #"{"a":"x"}"#, "a", "cannot be given to count"),
            ("{{uppercased(a)}}", #"{"a":{}}"#, "a", "cannot be given to uppercased"),
            ("{{uppercased(a)}}", #"{"a":[1]}"#, "a", "cannot be given to uppercased"),
            ("{{uppercased(count(a))}}", #"{"a":[1]}"#, "count(a)", "cannot be given to uppercased"),
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

    @Test("variables make no text with too many combining marks in a row")
    func marks() throws {
        let text = try TemplateText("{{a}}{{b}}", .text)
        func variables(_ count: Int) -> TemplateVariables {
            let marks = String(repeating: "\u{300}", count: count)
            return TemplateVariables([JSONMember("a", .string("x" + marks)), JSONMember("b", .string(marks))])
        }
        #expect(try text.render(variables(32)).unicodeScalars.count == 65)
        let error = #expect(throws: TemplateVariableFault.self) { try text.render(variables(33)) }
        #expect(error?.name == "")
        #expect(error?.reason == "make a text that has more than 64 combining marks in a row")
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
            ("{{uppercase(a)}}", 1, #"unknown function "uppercase"; did you mean uppercased?"#),
            ("x\n{{#sum(a)}}{{/sum(a)}}", 2, #"unknown function "sum""#), ("{{(a)}}", 1, #"unknown function """#),
            ("{{count()}}", 1, "count needs a variable"), ("{{count(a}}", 1, nil),
            ("{{*a}}", 1, nil), ("{{#a}}\n{{ .*b }}{{/a}}", 2, nil), ("{{uppercased(*a)}}", 1, nil),
            ("{{uppercased(empty(a))}}", 1, "no function takes the true or false of empty"),
        ] as [(String, Int, String?)]
    )
    func syntax(source: String, line: Int, reason: String?) {
        for form in [TemplateText.Form.text, .html] {
            let error = #expect(throws: TemplateSyntaxFault.self) { try TemplateText(source, form) }
            #expect(error?.line == line)
            if let reason { #expect(error?.reason == reason) }
        }
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
