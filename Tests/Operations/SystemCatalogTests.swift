// Carillon · SystemCatalogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Operations
import Testing

@testable import Core

/// The example catalogs (`examples/catalog.d`) and the demo's (`deploy/catalog.d`).
@Suite("Example catalogs", .timeLimit(.minutes(10)))
struct SystemCatalogTests {
    private static func catalog(_ folder: String = "examples/catalog.d") throws -> Catalog {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        return try CatalogLoader.load(path: root.appending(path: folder).path)
    }

    @Test("the demo catalog has the documented types with the settings of the accounting example")
    func demo() throws {
        let demo = try Self.catalog("deploy/catalog.d")
        let examples = try Self.catalog()
        for name in ["payment_received", "invoice_overdue", "invoice_created", "profile_updated", "system_maintenance"]
        {
            let type = try #require(demo[name])
            let other = try #require(examples[name])
            #expect(type.severity == other.severity && type.delivery == other.delivery && type.lane == other.lane)
            #expect(type.category == other.category && type.isOnByDefault == other.isOnByDefault)
        }
    }

    @Test("the family-finance types have the codes and categories of its clients")
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
                #expect(type.channels == [.inApp, .push, .email])
                #expect(type.timeToLive == .seconds(30 * 86_400))
                #expect(type.badge == .number(1))
                #expect(type.pushPriority == .high)
                #expect(type.isPushedWhenOnline && type.attentionDelay == .seconds(1))
                #expect(catalog.templates(of: name) != nil)
                count += 1
            }
        }
        #expect(catalog.all.filter { $0.code != nil }.count == count)
    }

    @Test("the accounting types have the expected severity, delivery and defaults")
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
            #expect(type.badge == .absent)
            #expect(type.timeToLive == .seconds(30 * 86_400))
        }
    }

    @Test(
        "the family-finance texts match those of its clients",
        arguments: [
            ("BalanceAlert", "Balance Alert", "Your balance changed to $5"),
            ("LowBalanceWarning", "Low Balance Warning", "Your balance is down to $5"),
            ("TransactionCreated", "Spending - $4", "Ice cream"),
            (
                "AllowanceDeposit", "Allowance Received!",
                "Your weekly allowance of $4 has been deposited. New balance: $5"
            ),
            ("AllowancePaused", "Allowance Paused", "Your allowance has been paused: messy room"),
            ("AllowanceResumed", "Allowance Resumed", "Your allowance is back on track!"),
            ("GoalProgress", "Goal Progress", "You're 40% of the way to Bike!"),
            ("GoalMilestone", "Milestone Reached!", "You've hit 40% on your Bike goal!"),
            ("GoalCompleted", "Goal Achieved!", "Congratulations! You saved enough for Bike!"),
            ("ParentMatchAdded", "Parent Match!", "Your parent added $4 to match your savings!"),
            ("TaskAssigned", "New Task", "You have a new task: Dishes - $1"),
            ("TaskReminder", "Task Reminder", "Don't forget: Dishes is due today"),
            ("ApprovalRequired", "Approval Needed", #"Tom completed "Dishes" - tap to review"#),
            ("TaskApproved", "Task Approved!", #""Dishes" was approved! $1 added to your balance."#),
            ("TaskRejected", "Task Needs Work", #""Dishes" wasn't approved: messy room"#),
            ("BudgetWarning", "Budget Warning", "You've spent 40% of your Toys budget"),
            ("BudgetExceeded", "Budget Exceeded", "You've exceeded your Toys budget by $4"),
            ("AchievementUnlocked", "Achievement Unlocked!", #"You earned the "Saver" badge!"#),
            ("StreakUpdate", "Streak Update", "You're on a 3-week savings streak!"),
            ("GiftReceived", "Gift Received!", "Gran sent you $4!"),
            ("WeeklySummary", "Your Weekly Summary", "This week: +$7 earned, -$3 spent"),
            ("TaskCompleted", "Notification", "You have a new notification"),
            ("FamilyInvite", "Notification", "You have a new notification"),
            ("ChildAdded", "Notification", "You have a new notification"),
            ("MonthlySummary", "Notification", "You have a new notification"),
            ("SystemAnnouncement", "Notification", "You have a new notification"),
        ]
    )
    func texts(type: String, title: String, body: String) throws {
        let variables = """
            {"balance": "$5", "amount": "$4", "type": "Spending", "description": "Ice cream", "reason": "messy room",
             "percent": 40, "goalName": "Bike", "taskName": "Dishes", "reward": "$1", "dueDate": "today",
             "childName": "Tom", "category": "Toys", "badgeName": "Saver", "count": 3, "giverName": "Gran",
             "income": "$7", "spending": "$3"}
            """
        var content = JobContent(type: type)
        content.variables = TemplateVariables(json: Array(variables.utf8)).members
        var renderer = try #require(try Self.catalog().renderer(content))
        let message = try renderer.message(locale: nil)
        #expect(message.title == title)
        #expect(message.body == body)
    }

    @Test("an allowance may be paused without a reason; a deposit without an amount is a fault")
    func reasons() throws {
        var content = JobContent(type: "AllowancePaused")
        content.variables = []
        var renderer = try #require(try Self.catalog().renderer(content))
        #expect(try renderer.message(locale: "en-US").body == "Your allowance has been paused")
        content.type = "AllowanceDeposit"
        let faults = try Self.catalog().renderer(content)?.faults()
        #expect(faults == [JobFault("vars.amount", "is missing, in type AllowanceDeposit, locale en")])
    }

    @Test("the household-task types have the buttons of each task state")
    func tasks() throws {
        let catalog = try Self.catalog()
        for name in ["task_assigned", "task_due_soon", "task_overdue", "task_completed", "task_digest", "push_test"] {
            #expect(catalog[name]?.delivery == .push)
            #expect(catalog[name]?.badge == .absent)
        }
        for name in ["task_assigned", "task_completed"] {
            let type = try #require(catalog[name])
            #expect(type.timeToLive == .seconds(30 * 86_400))
        }
        for name in ["task_due_soon", "task_overdue"] {
            #expect(catalog[name]?.digest?.singles == 5)
            let summary = try #require(catalog.summary(of: name))
            var renderer = MessageRenderer(
                summary, default: .english, variables: TemplateVariables([JSONMember("count", .number("7"))]))
            #expect(try renderer.message(locale: nil).body.hasPrefix("7 more tasks are "))
        }
        let expected = [
            "overdue": ("TASK_ACTIONABLE", ["edit", "complete", "cancel", "mark_in_progress"]),
            "due_soon": ("TASK_ACTIONABLE", ["edit", "complete", "cancel", "mark_in_progress"]),
            "in_progress": ("TASK_IN_PROGRESS", ["edit", "complete", "cancel"]),
            "cancelled": ("TASK_CANCELLED", ["edit"]),
            "completed": ("TASK_COMPLETED", ["edit"]),
        ]
        let actions = try #require(catalog.actions(of: "task_overdue"))
        for (state, (category, buttons)) in expected {
            #expect(actions.rule(for: state)?.category == category)
            #expect(actions.rule(for: state)?.buttons.map(\.id) == buttons)
        }
        #expect(actions.rule(for: nil) == nil)
    }

    @Test("the news types have the expected defaults, times and buttons")
    func news() throws {
        let catalog = try Self.catalog()
        let types = ["breaking_news", "developing_stories", "daily_digest"].compactMap { catalog[$0] }
        #expect(types.map(\.isOnByDefault) == [true, true, false])
        #expect(types.map(\.severity) == [.alert, .info, .info])
        #expect(types.map(\.quietHours) == [.inAppOnly, .inAppOnly, .defer])
        #expect(types.map(\.category) == ["news", "news", "news"])
        #expect(types.allSatisfy { $0.lane == .bulk && $0.sound == "default" && $0.badge == .number(1) })
        #expect(types.map(\.pushPriority) == [.high, nil, nil])
        let buttons = catalog.actions(of: "breaking_news")?.rule(for: nil)?.buttons
        #expect(buttons?.map(\.id) == ["read", "save", "share"])
        var content = JobContent(type: "breaking_news")
        content.variables = [JSONMember("title", .string("It rains"))]
        var renderer = try #require(catalog.renderer(content))
        #expect(try renderer.message(locale: nil).title == "🚨 BREAKING NEWS")
        #expect(try renderer.message(locale: nil).body == "It rains")
    }

    @Test("reminders at users' own times wait for the end of their quiet hours")
    func reminders() throws {
        let type = try #require(try Self.catalog()["scheduled_reminder"])
        #expect(type.delivery == .push && type.quietHours == .defer && type.timeToLive == .seconds(86_400))
        #expect(type.badge == .absent)
    }
}
