// Carillon · SystemCatalogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import Foundation
import Model
import Testing

/// The catalogs of the systems whose clients come along unchanged: `deploy/catalog.d`.
@Suite("Catalogs of other systems", .timeLimit(.minutes(1)))
struct SystemCatalogTests {
    private static func catalog() throws -> Catalog {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        return try CatalogLoader.load(path: root.appending(path: "deploy/catalog.d").path)
    }

    @Test("The family-finance app's types have the codes and categories that its clients know")
    func codes() throws {
        let expected: [(String, [String: Int])] = [
            ("Balance & Transactions", ["BalanceAlert": 1, "LowBalanceWarning": 2, "TransactionCreated": 3]),
            ("Allowance", ["AllowanceDeposit": 10, "AllowancePaused": 11, "AllowanceResumed": 12]),
            (
                "Goals & Savings",
                ["GoalProgress": 20, "GoalMilestone": 21, "GoalCompleted": 22, "ParentMatchAdded": 23]
            ),
            (
                "Tasks",
                [
                    "TaskAssigned": 30, "TaskReminder": 31, "TaskCompleted": 32, "ApprovalRequired": 33,
                    "TaskApproved": 34, "TaskRejected": 35,
                ]
            ),
            ("Budget", ["BudgetWarning": 40, "BudgetExceeded": 41]),
            ("Achievements", ["AchievementUnlocked": 50, "StreakUpdate": 51]),
            ("Family", ["FamilyInvite": 60, "ChildAdded": 61, "GiftReceived": 62]),
            ("System", ["WeeklySummary": 70, "MonthlySummary": 71, "SystemAnnouncement": 99]),
        ]
        let catalog = try Self.catalog()
        var count = 0
        for (category, codes) in expected {
            for (name, code) in codes {
                let type = try #require(catalog[name])
                #expect(type.code == code)
                #expect(type.category == category)
                #expect(type.delivery == .push)
                count += 1
            }
        }
        #expect(catalog.all.filter { $0.code != nil }.count == count)
    }

    @Test("The accounting app's types: severity, delivery, and who gets them without asking")
    func accounting() throws {
        let catalog = try Self.catalog()
        let expected: [(String, Severity, DeliveryClass, Bool)] = [
            ("payment_received", .alert, .push, true), ("invoice_overdue", .warning, .push, true),
            ("invoice_created", .info, .inApp, true), ("profile_updated", .info, .inApp, true),
            ("system_maintenance", .warning, .inApp, false),
        ]
        for (name, severity, delivery, isOn) in expected {
            let type = try #require(catalog[name])
            #expect(type.severity == severity)
            #expect(type.delivery == delivery)
            #expect(type.isOnByDefault == isOn)
        }
    }
}
