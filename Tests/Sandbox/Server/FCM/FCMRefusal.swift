// Carillon · FCMRefusal.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An error response of FCM: `google.rpc.Status` with its details.
struct FCMRefusal: Error {
    /// A `fieldViolations` entry of `google.rpc.BadRequest`.
    struct Violation {
        let field: String
        let description: String
    }

    let httpStatus: Int
    /// `google.rpc.Code`.
    let status: String
    /// The code of the `FcmError` detail; `nil` if the request did not reach FCM itself.
    let errorCode: String?
    let message: String
    var violation: Violation?
    /// The reason of the `google.rpc.ErrorInfo` detail.
    var reason: String?
    /// The link of the `google.rpc.Help` detail.
    var help: String?

    /// Whether the response has a `Retry-After`.
    var isTemporary: Bool { self.httpStatus == 429 || self.httpStatus == 503 }

    /// The key under which the response is counted.
    var name: String { self.errorCode ?? self.status }

    /// Writes the members of the error body, as FCM does.
    func write(to writer: inout JSONWriter) {
        writer.object("error") { writer in
            writer.member("code", self.httpStatus)
            writer.member("message", self.message)
            writer.member("status", self.status)
            let hasDetails = [self.errorCode, self.violation?.field, self.reason, self.help].contains { $0 != nil }
            if hasDetails { self.writeDetails(to: &writer) }
        }
    }

    private func writeDetails(to writer: inout JSONWriter) {
        writer.key("details")
        writer.beginArray()
        if let errorCode {
            writer.beginObject()
            writer.member("@type", "type.googleapis.com/google.firebase.fcm.v1.FcmError")
            writer.member("errorCode", errorCode)
            writer.endObject()
        }
        if let reason {
            writer.beginObject()
            writer.member("@type", "type.googleapis.com/google.rpc.ErrorInfo")
            writer.member("reason", reason)
            writer.member("domain", "googleapis.com")
            writer.object("metadata") { $0.member("service", "fcm.googleapis.com") }
            writer.endObject()
        }
        if let violation {
            writer.beginObject()
            writer.member("@type", "type.googleapis.com/google.rpc.BadRequest")
            writer.array("fieldViolations", [violation]) { writer, violation in
                writer.beginObject()
                writer.member("field", violation.field)
                writer.member("description", violation.description)
                writer.endObject()
            }
            writer.endObject()
        }
        if let help {
            writer.beginObject()
            writer.member("@type", "type.googleapis.com/google.rpc.Help")
            writer.array("links", [help]) { writer, link in
                writer.beginObject()
                writer.member("description", "Request a higher quota limit.")
                writer.member("url", link)
                writer.endObject()
            }
            writer.endObject()
        }
        writer.endArray()
    }
}

extension FCMRefusal {
    /// Google's front end could not parse the message: only BadRequest.
    static func unreadable(_ description: String, field: String?) -> FCMRefusal {
        let violation = field.map { Violation(field: $0, description: description) }
        return FCMRefusal(
            httpStatus: 400, status: "INVALID_ARGUMENT", errorCode: nil, message: description, violation: violation)
    }

    /// FCM rejected a value: FcmError, plus BadRequest when a field is known.
    static func invalid(_ description: String, field: String?) -> FCMRefusal {
        let violation = field.map { Violation(field: $0, description: description) }
        return FCMRefusal(
            httpStatus: 400, status: "INVALID_ARGUMENT", errorCode: "INVALID_ARGUMENT", message: description,
            violation: violation)
    }

    static let malformedToken = FCMRefusal.invalid(
        "The registration token is not a valid FCM registration token", field: nil)

    static let malformedTokenField = FCMRefusal.invalid("Invalid registration token", field: "message.token")

    static let otherField = FCMRefusal.invalid("Invalid title", field: "message.notification.title")

    static let unauthenticated = FCMRefusal(
        httpStatus: 401, status: "UNAUTHENTICATED", errorCode: nil,
        message: "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or "
            + "other valid authentication credential. See "
            + "https://developers.google.com/identity/sign-in/web/devconsole-project.",
        reason: "ACCESS_TOKEN_EXPIRED")

    static let missingCredential = FCMRefusal(
        httpStatus: 401, status: "UNAUTHENTICATED", errorCode: nil,
        message: "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie "
            + "or other valid authentication credential. See "
            + "https://developers.google.com/identity/sign-in/web/devconsole-project.",
        reason: "CREDENTIALS_MISSING")

    static let thirdPartyAuthError = FCMRefusal(
        httpStatus: 401, status: "UNAUTHENTICATED", errorCode: "THIRD_PARTY_AUTH_ERROR",
        message: "Auth error from APNS or Web Push Service")

    static let permissionDenied = FCMRefusal(
        httpStatus: 403, status: "PERMISSION_DENIED", errorCode: nil,
        message: "Permission 'cloudmessaging.messages.create' denied on resource (or it may not exist).",
        reason: "IAM_PERMISSION_DENIED")

    static let senderIDMismatch = FCMRefusal(
        httpStatus: 403, status: "PERMISSION_DENIED", errorCode: "SENDER_ID_MISMATCH", message: "SenderId mismatch")

    static let unregistered = FCMRefusal(
        httpStatus: 404, status: "NOT_FOUND", errorCode: "UNREGISTERED", message: "Requested entity was not found.")

    /// The project's quota, which Google's front end counts.
    static let quotaExceeded = FCMRefusal(
        httpStatus: 429, status: "RESOURCE_EXHAUSTED", errorCode: nil,
        message: "Quota exceeded for quota metric 'Send requests' and limit 'Send requests per minute' of service "
            + "'fcm.googleapis.com' for consumer 'project_number:1'.",
        reason: "RATE_LIMIT_EXCEEDED", help: "https://cloud.google.com/docs/quotas/help/request_increase")

    static let deviceQuotaExceeded = FCMRefusal(
        httpStatus: 429, status: "RESOURCE_EXHAUSTED", errorCode: "QUOTA_EXCEEDED",
        message: "Message rate exceeded for this device.")

    static let topicQuotaExceeded = FCMRefusal(
        httpStatus: 429, status: "RESOURCE_EXHAUSTED", errorCode: "QUOTA_EXCEEDED",
        message: "Topic message rate exceeded.")

    /// An error code that FCM does not document.
    static func newReason(_ httpStatus: Int, _ status: String) -> FCMRefusal {
        FCMRefusal(httpStatus: httpStatus, status: status, errorCode: "NEW_REASON", message: "An unknown error.")
    }

    static let unspecified = FCMRefusal(
        httpStatus: 500, status: "UNKNOWN", errorCode: "UNSPECIFIED_ERROR", message: "Unknown Error.")

    static let internalError = FCMRefusal(
        httpStatus: 500, status: "INTERNAL", errorCode: "INTERNAL", message: "Internal error encountered.")

    static let unavailable = FCMRefusal(
        httpStatus: 503, status: "UNAVAILABLE", errorCode: "UNAVAILABLE",
        message: "The service is currently unavailable.")
}
