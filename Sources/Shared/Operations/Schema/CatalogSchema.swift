// Carillon · CatalogSchema.swift
// SPDX-License-Identifier: Apache-2.0

/// The JSON Schema (draft 2020-12) of a catalog's file.
package enum CatalogSchema {
    package static let text = String(decoding: PackageResources.catalog_schema_json, as: UTF8.self)
}
