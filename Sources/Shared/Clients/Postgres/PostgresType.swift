// Carillon · PostgresType.swift
// SPDX-License-Identifier: Apache-2.0

/// The types that parameters may have, with their object ids from `pg_type.dat`.
package enum PostgresType: UInt32, Sendable {
    case bool = 16
    case bytea = 17
    case int8 = 20
    case int4 = 23
    case text = 25
    case float8 = 701
    case timestamptz = 1184
    case uuid = 2950
    case jsonb = 3802

    /// The object id of the one-dimensional array of this type.
    var arrayIdentifier: UInt32 {
        switch self {
        case .bool: 1000
        case .bytea: 1001
        case .int8: 1016
        case .int4: 1007
        case .text: 1009
        case .float8: 1022
        case .timestamptz: 1185
        case .uuid: 2951
        case .jsonb: 3807
        }
    }
}
