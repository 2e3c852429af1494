// Carillon · Schema.swift
// SPDX-License-Identifier: Apache-2.0

/// A JSON Schema (2020-12) for the description of the API.
///
/// A schema with a name appears once, under `components`, and by reference wherever it is used.
package struct Schema: Sendable {
    private var keywords: [JSONMember]
    /// The named schemas that it refers to, directly or not.
    package private(set) var components: [String: JSONValue] = [:]
    /// The names of an object's members.
    package private(set) var names: Set<String> = []

    package var json: JSONValue { .object(self.keywords) }

    /// The description; parameters carry it outside of their schema.
    package var description: JSONValue? { self.json["description"] }
    package var withoutDescription: JSONValue { .object(self.keywords.filter { $0.key != "description" }) }
    /// Whether it is text of limited length.
    package var isText: Bool { self.json["maxLength"] != nil }

    private init(_ keywords: JSONMember?..., containing parts: [Schema] = []) {
        self.keywords = keywords.compactMap(\.self)
        for part in parts { self.components.merge(part.components) { known, _ in known } }
    }

    /// A named schema.
    package init(_ name: String, _ definition: Schema) {
        self.init(JSONMember("$ref", .string("#/components/schemas/" + name)), containing: [definition])
        self.components[name] = definition.json
        self.names = definition.names
    }

    /// A named object.
    package init(_ name: String, _ fields: Fields, isClosed: Bool = false) {
        self.init(name, .object(fields, isClosed: isClosed))
    }

    package init(_ name: String, _ description: String, _ fields: Fields, isClosed: Bool = false) {
        self.init(name, .object(fields, isClosed: isClosed)(description))
    }
}

// MARK: Kinds

extension Schema {
    private static func kind(_ name: String, _ keywords: [(String, JSONValue?)] = []) -> Schema {
        var schema = Schema(JSONMember("type", .string(name)))
        schema.keywords += keywords.compactMap { key, value in value.map { JSONMember(key, $0) } }
        return schema
    }

    package static let string = kind("string")
    package static let bool = kind("boolean")
    package static let integer = kind("integer")
    package static let null = kind("null")
    package static let anything = Schema()
    /// An object with any members.
    package static let anyObject = kind("object")
    /// A whole number from 0.
    package static let count = kind("integer", [("minimum", .number("0"))])
    package static let uuid = kind("string", [("format", .string("uuid"))])
    /// An RFC 3339 time.
    package static let time = kind("string", [("format", .string("date-time"))])

    /// Text of 1 to `limit` characters.
    package static func text(_ limit: Int, pattern: String? = nil) -> Schema {
        .string(min: 1, max: limit, pattern: pattern)
    }

    /// An id that upstream apps choose: text, or a whole number, which counts as its digits.
    package static func id(_ limit: Int) -> Schema {
        .text(limit).with("type", .array([.string("string"), .string("integer")]))
    }

    package static func string(min: Int? = nil, max: Int? = nil, pattern: String? = nil) -> Schema {
        .kind(
            "string",
            [
                ("minLength", min.map { .number("\($0)") }), ("maxLength", max.map { .number("\($0)") }),
                ("pattern", pattern.map { .string($0) }),
            ])
    }

    package static func integer(_ range: ClosedRange<Int>, default value: Int? = nil) -> Schema {
        .kind(
            "integer",
            [
                ("minimum", .number("\(range.lowerBound)")), ("maximum", .number("\(range.upperBound)")),
                ("default", value.map { .number("\($0)") }),
            ])
    }

    package static func integer(from minimum: Int, default value: Int? = nil) -> Schema {
        .kind("integer", [("minimum", .number("\(minimum)")), ("default", value.map { .number("\($0)") })])
    }

    package static func bool(default value: Bool) -> Schema { .kind("boolean", [("default", .bool(value))]) }

    /// One of some words.
    package static func choice(_ words: String...) -> Schema {
        .kind("string", [("enum", .array(words.map { .string($0) }))])
    }

    /// One of an enum's raw values.
    package static func cases<Value: RawRepresentable<String> & CaseIterable>(of type: Value.Type) -> Schema {
        .kind("string", [("enum", .array(type.allCases.map { .string($0.rawValue) }))])
    }

    package static func constant(_ value: JSONValue) -> Schema { Schema(JSONMember("const", value)) }

    /// An array of at most `limit` elements.
    package static func list(of element: Schema, min: Int? = nil, max limit: Int) -> Schema {
        Schema(
            JSONMember("type", .string("array")), JSONMember("items", element.json),
            min.map { JSONMember("minItems", .number("\($0)")) }, JSONMember("maxItems", .number("\(limit)")),
            containing: [element])
    }

    /// An array without a limit, which the gateway streams while it reads the rows.
    package static func stream(of element: Schema) -> Schema {
        Schema(
            JSONMember("type", .string("array")), JSONMember("items", element.json),
            JSONMember("x-streamed", .bool(true)), containing: [element])
    }

    /// An object.
    ///
    /// - Parameter isClosed: whether it has no members but `fields`.
    package static func object(_ fields: Fields, isClosed: Bool = false) -> Schema {
        let properties = fields.all.map { JSONMember($0.name, $0.schema.json) }
        let required = fields.all.filter(\.isRequired).map { JSONValue.string($0.name) }
        var schema = Schema(
            JSONMember("type", .string("object")), JSONMember("properties", .object(properties)),
            required.isEmpty ? nil : JSONMember("required", .array(required)),
            isClosed ? JSONMember("additionalProperties", .bool(false)) : nil, containing: fields.all.map(\.schema))
        schema.names = fields.names
        return schema
    }

    /// An object whose members all have one schema, whatever their names.
    package static func map(of value: Schema) -> Schema {
        Schema(
            JSONMember("type", .string("object")), JSONMember("additionalProperties", value.json), containing: [value])
    }

    package static func oneOf(_ parts: Schema...) -> Schema {
        Schema(JSONMember("oneOf", .array(parts.map(\.json))), containing: parts)
    }

    package static func anyOf(_ parts: Schema...) -> Schema {
        Schema(JSONMember("anyOf", .array(parts.map(\.json))), containing: parts)
    }

    package static func allOf(_ parts: Schema...) -> Schema {
        Schema(JSONMember("allOf", .array(parts.map(\.json))), containing: parts)
    }
}

// MARK: Words of the model

extension Schema {
    package static let severity = cases(of: Severity.self)
    package static let delivery = cases(of: DeliveryClass.self)
    package static let lane = cases(of: Lane.self)
    package static let pushPriority = cases(of: PushPriority.self)
    package static let channel = cases(of: DeliveryChannel.self)
    package static let platform = cases(of: Platform.self)
    package static let environment = cases(of: ProviderEnvironment.self)
    /// A time of day, `HH:MM`.
    package static let timeOfDay = string(pattern: "^([01][0-9]|2[0-3]):[0-5][0-9]$")
    /// A time of day as other systems send it: `HH:MM` or `HH:MM:00`, with or without zero
    /// fractions, or empty.
    package static let lenientTimeOfDay = string(max: 16, pattern: "^(([01][0-9]|2[0-3]):[0-5][0-9](:00[0.]*)?)?$")
    /// A time of day as other systems show it, `HH:MM:00`.
    package static let timeOfDayInSeconds = string(pattern: "^[0-2][0-9]:[0-5][0-9]:00$")
    /// A provider that devices register with.
    package static let deviceProvider = kind(
        "string", [("enum", .array(Provider.all.filter(\.isOfDevices).map { .string($0.rawValue) }))])
}

// MARK: Additions

extension Schema {
    /// Adds a description: `.uuid("The first one.")`.
    package func callAsFunction(_ description: String) -> Schema { self.with("description", .string(description)) }

    /// Adds a keyword.
    package func with(_ key: String, _ value: JSONValue) -> Schema {
        var schema = self
        schema.keywords.removeAll { $0.key == key }
        schema.keywords.append(JSONMember(key, value))
        return schema
    }

    /// Allows null as well.
    package var orNull: Schema {
        guard let type = self.json["type"] else {
            guard let parts = self.json["oneOf"]?.array else { return .oneOf(self, .null) }
            return self.with("oneOf", .array(parts + [Schema.null.json]))
        }
        let schema = self.with("type", .array((type.array ?? [type]) + [.string("null")]))
        guard let words = self.json["enum"]?.array else { return schema }
        return schema.with("enum", .array(words + [.null]))
    }
}

/// The members of an object, or parameters, by name; `"name?"` may be left out.
package struct Fields: Sendable, ExpressibleByDictionaryLiteral {
    package struct Field: Sendable {
        package let name: String
        package let isRequired: Bool
        package var schema: Schema
    }

    package static let ifNoneMatch: Fields = ["If-None-Match?": .string("The ETag of the client's copy.")]

    package private(set) var all: [Field]

    package var names: Set<String> { Set(self.all.map(\.name)) }

    package init(dictionaryLiteral elements: (String, Schema)...) {
        self.init(elements)
    }

    package init(_ elements: [(String, Schema)]) {
        self.all = elements.map { name, schema in
            let isOptional = name.last == "?"
            return Field(
                name: isOptional ? String(name.dropLast()) : name, isRequired: !isOptional, schema: schema)
        }
    }

    /// The same members, which may be null as well.
    package var orNull: Fields {
        var fields = self
        for index in fields.all.indices { fields.all[index].schema = fields.all[index].schema.orNull }
        return fields
    }

    package static func + (left: Fields, right: Fields) -> Fields {
        var fields = left
        fields.all += right.all
        return fields
    }
}
