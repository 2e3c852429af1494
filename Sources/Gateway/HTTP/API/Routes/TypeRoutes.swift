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
            .ok(
                "The types.", TypeWords.shape.schema,
                headers: ["ETag": .string("Identifies the catalog and the languages.")]),
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
        var response = isKnown ? Response(status: .notModified) : Response.json(words, as: TypeWords.shape)
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

    // MARK: JSON

    static let shape = Shape<TypeWords>(
        "TypeList",
        [
            // Also disabled types: inboxes still have notifications of them.
            "types": .list(of: type, max: 10_000) { words in
                words.catalog.all.map {
                    (words: words, type: $0, presentation: words.catalog.presentation(ofType: $0.name))
                }
            },
            "categories": .list(of: category, max: 10_000) { words in
                Set(words.catalog.categories.map(\.category)).sorted().map {
                    (words: words, category: $0, presentation: words.catalog.presentation(ofCategory: $0))
                }
            },
        ])

    private static let type: Shape<(words: TypeWords, type: NotificationType, presentation: Presentation)> =
        [
            "type": .value(.text(JobLimits.name)) { $0.type.name },
            "category": .value(.string) { $0.type.category },
            "required": .value(.bool, "Whether users cannot refuse it.") { $0.type.isRequired },
            "image": .value(.string, "The picture of notifications that have none.") { $0.presentation.image },
            "actor": .value(
                .string, "The member of `data` with the name and image of who is behind it."
            ) { $0.presentation.actor },
        ] + presentation.of { ($0.words, $0.presentation) }

    private static let category: Shape<(words: TypeWords, category: String, presentation: Presentation)> =
        ["category": .value(.text(JobLimits.name)) { $0.category }] + presentation.of { ($0.words, $0.presentation) }

    private static let presentation: Shape<(words: TypeWords, presentation: Presentation)> = [
        "title": .value(.string, "Its name in the reader's language; null if the catalog has none.") {
            $0.words.text($0.presentation.title)
        },
        "description": .value(.string) { $0.words.text($0.presentation.description) },
        "icon": .value(.string, "The name of an icon, an emoji, or the URL of a picture.") { $0.presentation.icon },
    ]
}
