// Carillon · TypeRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird

/// The words and pictures of types and categories, for clients: `/v1/types`.
struct TypeRoutes {
    private static let mostLocales = 20

    let base: GatewayBase

    func add(to routes: Routes) {
        routes.get("types", Self.list, self.list)
    }

    private static let list = Operation(
        "listTypes",
        "Lists the types and categories of the catalog with their names, descriptions and icons.",
        query: [
            "locale?": .text(400)(
                "The wanted languages, best first, separated by commas; by default the catalog's.")
        ],
        headers: .ifNoneMatch,
        answers: [
            .ok("The types.", .typeList, headers: ["ETag": .string("Identifies the catalog and the languages.")]),
            Answer(304, "Nothing has changed."),
        ])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        _ = try context.user()
        var query = FieldReader(query: request, of: Self.list)
        let wanted = query.text("locale", limit: 400) ?? ""
        try query.finish()
        let locales = wanted.split(separator: ",").prefix(Self.mostLocales).map { String($0.filter { $0 != " " }) }
        let catalog = self.base.catalog
        let words = TypeWords(catalog, locales: locales)
        let languages = locales.joined(separator: "_").filter { character in
            character.isASCII && (character.isLetter || character.isNumber || "_-".contains(character))
        }
        let tag = "\"\(catalog.digest)-\(languages)\""
        let isKnown = request.headers[.ifNoneMatch]?.contains(tag) == true
        var response = isKnown ? Response(status: .notModified) : Response.object { words.write(to: &$0) }
        response.headers[.eTag] = tag
        response.headers[.cacheControl] = "private, no-cache"
        return response
    }
}

/// The words of a catalog for a reader of some languages.
struct TypeWords {
    private let catalog: Catalog
    private let locales: [String]

    /// - Parameter locales: the wanted languages, best first.
    init(_ catalog: Catalog, locales: [String]) {
        self.catalog = catalog
        self.locales = locales
    }

    /// Returns a type's title; nil if the catalog has none.
    func title(ofType name: String) -> String? { self.text(self.catalog.presentation(ofType: name).title) }

    private func text(_ text: LocalizedText) -> String? {
        text.text(for: self.locales, default: self.catalog.defaultLocale)
    }

    /// Writes the members of the object.
    func write(to writer: inout JSONWriter) {
        // Also disabled types: inboxes still have notifications of them.
        writer.array("types", self.catalog.all) { writer, type in
            let presentation = self.catalog.presentation(ofType: type.name)
            writer.beginObject()
            writer.member("type", type.name)
            self.write(presentation, to: &writer)
            writer.member("category", type.category)
            writer.member("required", type.isRequired)
            writer.member("image", presentation.image)
            writer.member("actor", presentation.actor)
            writer.endObject()
        }
        writer.array("categories", Set(self.catalog.categories.map(\.category)).sorted()) { writer, category in
            writer.beginObject()
            writer.member("category", category)
            self.write(self.catalog.presentation(ofCategory: category), to: &writer)
            writer.endObject()
        }
    }

    private func write(_ presentation: Presentation, to writer: inout JSONWriter) {
        writer.member("title", self.text(presentation.title))
        writer.member("description", self.text(presentation.description))
        writer.member("icon", presentation.icon)
    }
}

extension Schema {
    private static let words: Fields = [
        "title": .string.orNull("Its name in the reader's language; null if the catalog has none."),
        "description": .string.orNull,
        "icon": .string.orNull("The name of an icon, an emoji, or the URL of a picture."),
    ]

    static let typeList = Schema(
        "TypeList",
        [
            "types": .list(
                of: .object(
                    [
                        "type": .text(JobLimits.name),
                        "category": .string.orNull,
                        "required": .bool("Whether users cannot refuse it."),
                        "image": .string.orNull("The picture of notifications that have none."),
                        "actor": .string.orNull("The member of `data` with the name and image of who is behind it."),
                    ] + words), max: 10_000),
            "categories": .list(of: .object(["category": .text(JobLimits.name)] + words), max: 10_000),
        ])
}
